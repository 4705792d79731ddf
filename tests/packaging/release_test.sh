#!/bin/bash
# Runs scripts/release of the repository $1 in a small repository of its own: what it refuses, and the parts that need no
# compiler. Exit code 77: there is no git or no python3.
set -u
for tool in git python3; do
  command -v $tool >/dev/null || { echo "skipped: there is no $tool on this machine"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0
complain() {
  echo "$1"
  bad=1
}
# refuses TEXT ARGUMENTS...: it ends with an error that has this text, and has made nothing.
refuses() {
  local text=$1 said
  shift
  if said=$(scripts/release "$@" 2>&1); then complain "scripts/release $* was not refused: $said"; fi
  [[ $said == *"$text"* ]] || complain "scripts/release $* did not say \"$text\": $said"
  [ ! -e dist ] || [ -z "$(find dist -type f)" ] || complain "scripts/release $* made files: $(find dist -type f)"
}

mkdir -p "$work/project/scripts/packaging"
cd "$work/project" || exit 1
cp "$1/scripts/release" scripts/
cp "$1/scripts/packaging/sbom.py" scripts/packaging/
echo 'project(ddprun VERSION 1.2.3 LANGUAGES C CXX)' >CMakeLists.txt
printf '# Changelog\n\n## Unreleased\n\n* later\n\n## 1.2.3 - 2026-01-01\n\n* a new thing\n\n## 1.2.2\n\n* an old one\n' >CHANGELOG.md
printf '/dist/\n/build/\n' >.gitignore
git init -q . && git add -A && git -c user.name=test -c user.email=test@test.invalid commit -qm first || exit 1

touch forgotten
refuses "?? forgotten" 1.2.3 --no-tests
rm forgotten
echo >>CHANGELOG.md
refuses " M CHANGELOG.md" 1.2.3 --no-tests
git checkout -q CHANGELOG.md
refuses "1.2.4 is not the version in CMakeLists.txt, which is 1.2.3" 1.2.4 --no-tests
refuses "no such file" 1.2.3 --no-tests --key nowhere.key
refuses "unknown option --fast" 1.2.3 --fast
refuses "give a version or one of wheel" everything

# A stand-in for the program, which says what is copied into it.
mkdir -p build/debian/bin
printf '#!/bin/sh\necho ddprun 1.2.3\necho copied into ddprun: Boost 1.81.0, libstdc++ of GNU 12.2.0, spdlog 1.10.0\n' >build/debian/bin/ddprun
chmod +x build/debian/bin/ddprun
mkdir -p build/packaging/sbom/bin  # no venv is made here, so nothing is fetched
ln -s "$(command -v python3)" build/packaging/sbom/bin/python
for folder in one two; do
  for part in source changes sbom sums; do scripts/release $part "dist/$folder" >/dev/null || complain "scripts/release $part failed"; done
done
diff -r dist/one dist/two || complain "two runs differ"
cd dist/one || exit 1
[ "$(cat CHANGES-1.2.3.md)" = "* a new thing" ] || complain "the part of the changelog is: $(cat CHANGES-1.2.3.md)"
[ "$(awk '{print $2}' SHA256SUMS | tr '\n' ' ')" = "CHANGES-1.2.3.md ddprun-1.2.3.spdx.json ddprun-1.2.3.tar.gz " ] ||
  complain "the checksums are: $(cat SHA256SUMS)"
sha256sum --check --quiet SHA256SUMS || complain "a checksum is wrong"
tar -tzf ddprun-1.2.3.tar.gz | grep -qx ddprun-1.2.3/CMakeLists.txt || complain "the sources have no CMakeLists.txt"
python3 - <<'EOF' || complain "the SBOM lacks a library or a file"
import json
sbom = json.load(open("ddprun-1.2.3.spdx.json"))
names = [each["name"] + " " + each["versionInfo"] for each in sbom["packages"]]
assert names == ["ddprun 1.2.3", "Boost 1.81.0", "libstdc++ GNU 12.2.0", "spdlog 1.10.0"], names
assert [each["fileName"] for each in sbom["files"]] == ["./ddprun-1.2.3.tar.gz"], sbom["files"]
EOF
exit $bad
