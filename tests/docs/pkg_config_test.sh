#!/bin/bash
# Installs this build into a folder of its own, builds a C program with the flags that pkg-config gives for it, and runs
# that as a world of one; then moves the folder and does it again. Exit code 77: there is no pkg-config here.
#
#   pkg_config_test.sh BUILD C_COMPILER PROGRAM FURTHER_FLAGS
set -u
build=$1 compiler=$2 program=$3 further=$4
if ! command -v pkg-config >/dev/null; then
  echo "skipped: there is no pkg-config on this machine (Debian: pkgconf)"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_USE_AGENT_STORE DDP_BACKEND_PATH
unset PKG_CONFIG_PATH
for component in libddp libddp_dev; do
  cmake --install "$build" --prefix "$work/first" --component "$component" >/dev/null || exit 1
done

# builds_and_runs PREFIX
builds_and_runs() {
  local pc flags said
  pc=$(find "$1" -name ddp.pc)
  PKG_CONFIG_LIBDIR=$(dirname "$pc")
  export PKG_CONFIG_LIBDIR
  flags=$(pkg-config --cflags --libs ddp) || exit 1
  # shellcheck disable=SC2086
  "$compiler" -std=c99 $further "$program" $flags -o "$1/program" || exit 1
  said=$(LD_LIBRARY_PATH=$(pkg-config --variable=libdir ddp) "$1/program") || exit 1
  [ "$said" = "rank 0 of 1: the ranks add up to 0" ] && return
  echo "built with $flags, it said: $said"
  exit 1
}
builds_and_runs "$work/first"
mv "$work/first" "$work/second"
builds_and_runs "$work/second"
pkg-config --libs ddp-training | grep -q -- '-lddp_training.* -lddp\b' || { echo "ddp-training is not libddp_training and libddp"; exit 1; }
[ "$(pkg-config --modversion ddp)" = "$(sed -n 's/^Version: //p' "$(find "$work/second" -name ddp.pc)")" ]
