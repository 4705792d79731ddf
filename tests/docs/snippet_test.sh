#!/bin/bash
# Checks that a document's program prints what the document shows. Lines may come in any order, since ranks do; "..."
# stands for any text, and on a line of its own for any lines. Each "$ COMMAND" is run, with ./program for the program; without one it is
# `ddprun --nproc_per_node 2 ./program`. Only where "failed:" is shown may a command fail, and must.
#
#   snippet_test.sh DDPRUN PROGRAM EXPECTED
set -u
ddprun=$1 program=$2 expected=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ln -s "$program" "$work/program"
ln -s "$ddprun" "$work/ddprun"
cd "$work" || exit 1
PATH=$work:$PATH
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT

bad=0
# check COMMAND LINE...: runs the command and compares its output with the lines.
check() {
  local command=$1 line pattern i found anything='' fails=''
  shift
  mapfile -t said < <(timeout 60 bash -c "$command" 2>&1 </dev/null; echo "code $?")
  local code=${said[-1]#code }
  unset 'said[-1]'
  local everything
  everything=$(printf '  %s\n' "${said[@]}")
  for line in "$@"; do
    [ "$line" = ... ] && anything=yes && continue
    [[ $line == *failed:* ]] && fails=yes
    pattern=$(sed 's/[][*?\\]/\\&/g; s/\.\.\./*/g' <<<"$line")
    found=''
    for i in "${!said[@]}"; do
      # shellcheck disable=SC2053
      if [[ ${said[i]} == $pattern ]]; then
        unset "said[$i]"
        found=yes
        break
      fi
    done
    [ -n "$found" ] || { echo "nobody said: $line"; bad=1; }
  done
  if [ -z "$anything" ] && [ ${#said[@]} -gt 0 ]; then
    printf 'not in the document: %s\n' "${said[@]}"
    bad=1
  fi
  if { [ -z "$fails" ] && [ "$code" -ne 0 ]; } || { [ -n "$fails" ] && [ "$code" -eq 0 ]; }; then
    echo "exit code $code"
    bad=1
  fi
  [ $bad -eq 0 ] || printf '%s said:\n%s\n' "$command" "$everything"
}

mapfile -t lines <"$expected"
[[ ${lines[0]} == '$ '* ]] || lines=('$ ddprun --nproc_per_node 2 ./program' "${lines[@]}")
command='' shown=()
for line in "${lines[@]}" '$ '; do
  if [[ $line == '$ '* ]]; then
    [ -z "$command" ] || check "$command" "${shown[@]}"
    command=${line#$ } shown=()
  else
    shown+=("$line")
  fi
done
exit $bad
