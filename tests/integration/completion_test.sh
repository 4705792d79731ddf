#!/bin/bash
# Checks what bash offers after reading `ddprun --print-completion bash`.
#
#   completion_test.sh DDPRUN
set -u
ddprun=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/here" && cd "$folder/here" || exit 1
mkdir logs && touch train.py "two words.py" logs/old
"$ddprun" --print-completion bash >script || exit 1

# Prints what is offered for the last argument, one word per line.
in_bash() {
  bash --norc -c 'source ./script && complete -p ddprun >/dev/null || exit 1
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    _ddprun
    printf "%s\n" "${COMPREPLY[@]}"' bash "$@"
}

# Expects bash to offer exactly $1 for the words $2..., which it has in COMP_WORDS.
expect() {
  local expected=$1 offered
  shift
  offered=$(in_bash "$@" | sort | tr '\n' ' ')
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

failures=0
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
"$ddprun" --print-completion zsh 2>said
[ $? = 2 ] && grep -q "give bash, not 'zsh'" said || { cat said; failures=$((failures + 1)); }
exit $((failures > 0))
