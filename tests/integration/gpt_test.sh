#!/bin/bash
# Tests apps/examples/gpt.cu. Exit code 77: this machine lacks what the test needs.
#
#   gpt_test.sh cpu DDPRUN TRAIN GPT        compiled for CPUs: its losses are those of apps/train, alone and as two ranks;
#                                           bf16 with master weights is close to them; it goes on from a checkpoint
#   gpt_test.sh compile NVCC REPOSITORY LIBRARY_FOLDER PROGRAM [LAUNCHER...]
#   gpt_test.sh gpu DDPRUN TRAIN PROGRAM    the same as "cpu", on the GPUs that there are; two ranks may share one
set -u
export LSAN_OPTIONS=detect_leaks=0  # gpt keeps its memory until it ends
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ "$1" = compile ]; then
  nvcc=$2 repository=$3 libraries=$4 program=$5
  if ! command -v "$nvcc" >/dev/null; then
    echo "skipped: there is no nvcc on this machine"
    exit 77
  fi
  if ! echo '#include <cublas_v2.h>' | "$nvcc" -x cu -E - >/dev/null 2>&1; then
    echo "skipped: nvcc finds no cuBLAS"
    exit 77
  fi
  # Compiled for any kind of GPU with bf16: the driver compiles the intermediate code.
  any_gpu=(-arch=compute_80 -code=compute_80)
  "${@:6}" "$nvcc" -O3 -std=c++17 --extended-lambda "${any_gpu[@]}" -Werror all-warnings \
    -Xcompiler -Wall,-Wextra,-Wshadow,-Werror "-I$repository/runtime/include" \
    -c "$repository/apps/examples/gpt.cu" -o "$program.o" || exit
  if ! echo 'int main() {}' | "$nvcc" -x cu - -lcublas -o "$work/linked" >/dev/null 2>&1; then
    echo "compiled, and not linked: there is no libcublas.so"
    exit 0
  fi
  exec "$nvcc" "${any_gpu[@]}" "$program.o" -o "$program" "-L$libraries" -lddp -lcublas -Xlinker "-rpath=$libraries"
fi

ddprun=$2 train=$3 gpt=$4
as_rank=()  # what goes before the program
if [ "$1" = gpu ]; then
  if ! [ -x "$gpt" ]; then
    echo "skipped: it was not compiled"
    exit 77
  fi
  gpus=$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU')
  if [ "$gpus" -eq 0 ]; then
    echo "skipped: there is no GPU"
    exit 77
  fi
  if [ "$gpus" -eq 1 ]; then
    # NCCL lets ranks share a GPU if it believes that each is on a host of its own.
    export NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_MNNVL_ENABLE=0 NCCL_NVLS_ENABLE=0
    as_rank=(sh -c 'export LOCAL_RANK=0 NCCL_HOSTID=rank$RANK; exec "$@"' sh)
  fi
fi

for i in $(seq 400); do echo "line $i: the square of $i is $((i * i)), and its cube is $((i * i * i))"; done >"$work/data"
options=(--data "$work/data" --context 32 --layers 2 --heads 2 --width 32 --steps 12 --global-batch 8 --lr 0.006
  --warmup 4 --seed 7)

# near NAME LOG BOUND: each loss differs from the CPU trainer's by at most this part of it.
near() {
  paste "$work/train.log" "$2" | awk -v bound="$3" -v name="$1" '
    { difference = ($2 - $4) / $2; if (difference < 0) difference = -difference
      if ($1 != $3 || !(difference <= bound)) { print name ": step " $1 ": loss " $4 " instead of " $2; wrong = 1 } }
    END { if (NR != 12) { print name ": " NR " steps instead of 12"; wrong = 1 } exit wrong }'
}
# run NAME RANKS [OPTION...]: trains, with its losses in NAME.log.
run() {
  "$ddprun" --nproc_per_node "$2" --no-python "${as_rank[@]}" "$gpt" "${options[@]}" --log "$work/$1.log" "${@:3}" \
    >"$work/$1.out" 2>&1 ||
    { cat "$work/$1.out"; exit 1; }
}

"$ddprun" --nproc_per_node 2 "$train" "${options[@]}" --checkpoint-every 0 --validate-every 0 --sample-bytes 0 \
  --log "$work/train.log" >"$work/train.out" 2>&1 || { cat "$work/train.out"; exit 1; }
failed=0
for n in 1 2; do
  run "float$n" "$n"
  near "float, $n ranks" "$work/float$n.log" 0.001 || failed=1
  # Weights and gradients of 8 bits, masters of 24.
  run "bf16$n" "$n" --type bf16 --checkpoint "$work/steps$n" --checkpoint-every 6
  near "bf16, $n ranks" "$work/bf16$n.log" 0.03 || failed=1
  # As if it had ended after step 8: it goes on after step 6, and takes the same steps.
  rm -rf "$work/steps$n/step-000000012"
  head -6 "$work/bf16$n.log" >"$work/again$n.log"
  run "again$n" "$n" --type bf16 --checkpoint "$work/steps$n" --checkpoint-every 6
  cmp "$work/bf16$n.log" "$work/again$n.log" || failed=1
done
exit $failed
