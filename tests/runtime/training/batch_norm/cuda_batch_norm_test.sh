#!/bin/bash
# ddp/sync_batch_norm.cuh: "compile" builds the worker that uses all of it; "run" runs that, by itself and as two ranks
# on one GPU. Exit code 77: there is no nvcc, or no GPU, on this machine.
#
#   cuda_batch_norm_test.sh compile NVCC REPOSITORY LIBRARY_FOLDER PROGRAM [LAUNCHER...]
#   cuda_batch_norm_test.sh run DDPRUN PROGRAM
set -u
if [ "$1" = compile ]; then
  nvcc=$2 repository=$3 libraries=$4 program=$5
  if ! command -v "$nvcc" >/dev/null; then
    echo "skipped: there is no nvcc on this machine"
    exit 77
  fi
  # For a GPU of any kind: the driver compiles the rest.
  any_gpu=(-arch=compute_75 -code=compute_75)
  "${@:6}" "$nvcc" -std=c++17 "${any_gpu[@]}" -Werror all-warnings \
    -Xcompiler -Wall,-Wextra,-Wconversion,-Wshadow,-Werror "-I$repository" "-I$repository/runtime/include" \
    -c "$repository/tests/runtime/training/batch_norm/cuda_batch_norm_worker.cu" -o "$program.o" || exit
  exec "$nvcc" "${any_gpu[@]}" "$program.o" -o "$program" "-L$libraries" -lddp -Xlinker "-rpath=$libraries"
fi
ddprun=$2 program=$3
if ! [ -x "$program" ]; then
  echo "skipped: it was not compiled"
  exit 77
fi
"$program"
code=$?
[ $code -eq 0 ] || exit $code
NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_MNNVL_ENABLE=0 NCCL_NVLS_ENABLE=0 NCCL_MAX_CTAS=2 NCCL_CUMEM_HOST_ENABLE=0 \
  exec "$ddprun" --nproc-per-node 2 "$program"
