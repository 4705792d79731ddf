#!/bin/bash
# Packs the build $2 twice with scripts/packaging/debs of the repository $1, and compares the packages: they are equal byte
# for byte. Exit code 77: the tools that pack are not installed.
set -u
for tool in dpkg-shlibdeps file cpack; do
  command -v $tool >/dev/null || { echo "skipped: there is no $tool on this machine (Debian: dpkg-dev, file, cmake)"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SOURCE_DATE_EPOCH=1700000000
"$1/scripts/packaging/debs" --build "$2" "$work/first" || exit 1
# dpkg reads what it is given, not what CPack meant.
for deb in "$work"/first/*.deb; do
  dpkg --info "$deb" | grep -q '^ Description: ...' || { echo "$deb has no description"; exit 1; }
done
recommends=$(dpkg-deb --field "$work"/first/ddprun_*.deb Recommends Description)
[[ $recommends == *"Recommends: elfutils"* && $recommends == *"pip install py-spy"* ]] ||
  { echo "the package of ddprun does not recommend what takes stacks: $recommends"; exit 1; }
[ "$(dpkg-deb --field "$work"/first/libddp-dev_*.deb Depends)" = "libddp1 (= $(dpkg-deb --field "$work"/first/libddp1_*.deb Version))" ] ||
  { echo "libddp-dev does not depend on its libddp1"; exit 1; }
# What changes between two days: the time.
find "$2/debian" -name 'changelog.gz' -exec touch -d '2001-01-01' {} +
"$1/scripts/packaging/debs" --build "$2" "$work/second" || exit 1
diff <(cd "$work/first" && sha256sum ./*) <(cd "$work/second" && sha256sum ./*)
