#!/bin/bash
# Builds what scripts/quickstart builds, in the folder $2, and trains a step with it. $1 is the repository.
set -eu
cd "$1"
cmake --preset quickstart -DCMAKE_CXX_FLAGS_RELEASE=-O0 -B "$2" >/dev/null
cmake --build "$2" --target ddprun train -- -j 2 --quiet
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
said=$("$2/bin/ddprun" --nproc_per_node 2 train --data "$1/LICENSE" --steps 1 --width 32 --context 32)
grep -q 'validation after 1 steps' <<<"$said" || { echo "it said: $said"; exit 1; }
