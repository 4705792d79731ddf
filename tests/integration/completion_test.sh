#!/bin/bash
# Checks what a shell offers after reading `ddprun --print-completion SHELL`. Exit code 77: the
# shell is not installed.
#
#   completion_test.sh bash|zsh|fish DDPRUN
set -u
shell=$1 ddprun=$2
if ! command -v "$shell" >/dev/null; then
  echo "skipped: there is no $shell on this machine"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/here" && cd "$folder/here" || exit 1
mkdir logs && touch train.py "two words.py" logs/old
"$ddprun" --print-completion "$shell" >script || exit 1

# Each function prints what is offered for its last argument, one word per line.
in_bash() {
  bash --norc -c 'source ./script && complete -p ddprun >/dev/null || exit 1
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    _ddprun
    printf "%s\n" "${COMPREPLY[@]}"' bash "$@"
}
in_zsh() { # a zsh on a terminal of its own, whose lists go to a file instead
  zsh -f ../drive "$*"
}
in_fish() { fish --no-config -c 'source ./script; complete -C "$argv"' -- "$*" | cut -f 1; }

# Expects bash to offer exactly $1 for the words $2..., which it has in COMP_WORDS.
expect() {
  local expected=$1 offered
  shift
  offered=$("in_$shell" "$@" | sort | tr '\n' ' ')
  offered=${offered% }
  if [ "$offered" = "$expected" ]; then
    echo "ok   ${*}| $offered"
  else
    echo "FAIL ${*}|"
    echo "     expected: $expected"
    echo "     offered:  $offered"
    failures=$((failures + 1))
  fi
}

[ "$shell" = zsh ] && cat >../drive <<'DRIVE'
# compadd with -O writes the matches into an array instead of offering them. READY and DONE are
# written in two pieces, so that the echo of typed input is not mistaken for them.
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'autoload -Uz compinit; compinit -u -D; source ./script'
zpty -w shell 'compadd() { local -a found; builtin compadd -O found "$@"; print -rl -- $found >>../offered; builtin compadd "$@" }'
zpty -w shell 'finish() { print "DO""NE" }; zle -N finish; bindkey "^X" finish; print "REA""DY"'
zpty -r shell _ '*READY*'
: >../offered
zpty -n -w shell "$1"$'\t\x18'
zpty -r shell _ '*DONE*'
zpty -d shell
sort -u ../offered | grep .
DRIVE

failures=0
if [ "$shell" = bash ]; then
  expect "--redirects" ddprun --redi
  expect "--rdzv-backend --rdzv-conf --rdzv-endpoint --rdzv-id" ddprun --nnodes 2 --rdzv-
  expect "auto cpu gpu npu xpu" ddprun --nproc-per-node ""
  expect "c10d" ddprun --rdzv_backend = c
  expect "dash underscore" ddprun --legacy-local-rank =
  expect "logs" ddprun --log-dir l
  expect "train.py" ddprun -t 3 --nnodes = 2 -m tr
  expect "train.py" ddprun --rdzv-endpoint host : 80 tr
  expect "logs script train.py two words.py" ddprun --standalone ""
  expect "" ddprun train.py --redi
  expect "" ddprun -- train.py --redi
  expect "" ddprun --nnodes ""
  expect "chaos" ddprun ch
  expect "script stacks" ddprun s
  expect "" ddprun --standalone ch
elif [ "$shell" = zsh ]; then
  expect "--redirects" ddprun --redi
  expect "--rdzv-backend --rdzv-conf --rdzv-endpoint --rdzv-id" ddprun --nnodes 2 --rdzv-
  expect "auto cpu gpu npu xpu" ddprun --nproc-per-node ""
  expect "c10d" ddprun --rdzv-backend=c
  expect "train.py" ddprun -t 3 -m tra
  expect "" ddprun train.py --redi
  expect "chaos" ddprun cha
  expect "" ddprun --standalone cha
else
  expect "--redirects" ddprun --redi
  expect "--rdzv-backend --rdzv-conf --rdzv-endpoint --rdzv-id" ddprun --nnodes 2 --rdzv-
  expect "auto cpu gpu npu xpu" ddprun --nproc-per-node ""
  expect "--rdzv-backend=c10d" ddprun --rdzv-backend=c
  expect "train.py" ddprun -t 3 -m tra
  expect "" ddprun train.py --redi
  expect "chaos" ddprun cha
  expect "" ddprun --standalone cha
fi
"$ddprun" --print-completion tcsh 2>said
[ $? = 2 ] && grep -q "give bash, zsh or fish, not 'tcsh'" said || { cat said; failures=$((failures + 1)); }
exit $((failures > 0))
