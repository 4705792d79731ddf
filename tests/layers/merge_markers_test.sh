#!/usr/bin/env bash
# merge_markers_test.sh REPOSITORY: scripts/merge_markers, and scripts/pre-commit and scripts/lint, which call it, in a
# repository of their own.
set -euo pipefail
repository=$1
command -v git >/dev/null || { echo "skipped: there is no git here"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wrong() { echo "merge_markers_test: $1" >&2; exit 1; }

cd "$work"
export HOME=$work GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a
git init -q
mkdir scripts
cp "$repository"/scripts/{lint,merge_markers,pre-commit} scripts/
printf '#!/bin/sh\n' | tee scripts/install_packages scripts/plain_english scripts/tidy >clang-format  # not what this is about
chmod +x clang-format scripts/*
ln -s ../../scripts/pre-commit .git/hooks/pre-commit
printf 'A title\n=======\n\n=== a drawing\n<<<<<<<<<<<< and another\n' >page.md
sed -i 's/^=======$/========/' page.md
git add .
git commit -qm whole || wrong "a repository without markers was refused"
PATH=$work:$PATH scripts/lint >/dev/null 2>lint.log || wrong "lint refused it: $(cat lint.log)"

for marker in '<<<<<<< HEAD' '||||||| 1234567' '=======' '>>>>>>> origin/main'; do
  for name in page.md "a file.txt"; do
    printf 'before\n%s\nafter\n' "$marker" >"$name"
    git add .
    if git commit -qm marked 2>said.log; then wrong "a commit with $marker in $name was made"; fi
    grep -q "merge markers" said.log || wrong "the commit with $marker in $name failed otherwise: $(cat said.log)"
    if PATH=$work:$PATH scripts/lint >found.log 2>&1; then wrong "lint accepts $marker in $name"; fi
    grep -qF "$name:2:$marker" found.log || wrong "lint does not name $marker in $name: $(cat found.log)"
    git reset -q --hard
  done
done
