#!/bin/bash
# groff accepts the installed manual page, the page has every option of --help, and its first example
# works as it stands. Exit code 77: groff is not installed.
#
#   man_page_test.sh BUILD DDPRUN
set -u
build=$1 ddprun=$2
if ! command -v groff >/dev/null; then
  echo "skipped: there is no groff on this machine"
  exit 77
fi
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
cmake --install "$build" --prefix "$prefix" --component manual >/dev/null || exit 1

# Renders plain text, with lines so long that no term is broken.
render() { groff -man -ww -Tascii -P -cbou -rLL=500n "$prefix/share/man/man1/ddprun.1"; }
warnings=$(render 2>&1 >/dev/null)
if [ -n "$warnings" ]; then
  printf '%s\n' "$warnings"
  exit 1
fi
text=$(render)
missing=0 options=0
while read -r heading; do
  options=$((options + 1))
  if ! grep -qxF "       $heading" <<<"$text"; then
    echo "not in the manual page: $heading"
    missing=1
  fi
done < <("$ddprun" --help | sed '/^EXAMPLES/q' | grep -E '^  (-[a-z], )?--[a-z]')
echo "$options options"

# The first example, where only what is installed can be found.
cmake --install "$build" --prefix "$prefix" --component Unspecified >/dev/null || exit 1
example=$(sed -n '/^EXAMPLES/,/^EXIT/s/^ \+\(ddprun .*\)/\1/p' <<<"$text" | head -1)
ranks=$(cd / && PATH=$prefix/bin:/usr/bin:/bin sh -c "$example" | sort)
if [ "$ranks" != "$(printf 'rank %d of 4\n' 0 1 2 3)" ]; then
  printf '%s\n' "the first example, $example, printed:" "$ranks"
  exit 1
fi
exit $((missing || options < 30))
