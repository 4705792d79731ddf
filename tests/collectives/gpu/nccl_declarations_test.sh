#!/bin/bash
# nccl_declarations_test.sh COMPILER REPOSITORY: compiles nccl_declarations.cpp with the real headers of NCCL and CUDA: those of
# the system, else those that PyTorch has brought into the environment of $DDPRUN_TEST_PYTHON. Needs no library and no GPU.
# Exit code 77: there are none.
set -u
cd "$2" || exit 1
packages=$(dirname "${DDPRUN_TEST_PYTHON:-/nowhere/bin/python}")/../lib/python3*/site-packages/nvidia
for headers in "-isystem /usr/local/cuda/include" "$(printf -- '-isystem %s ' $packages/{nccl,cuda_runtime,cu1*}/include)"; do
  # shellcheck disable=SC2086
  if printf '#include <nccl.h>\n#include <cuda.h>\n' | "$1" $headers -fsyntax-only -x c++ - 2>/dev/null; then
    exec "$1" $headers -I. -Iruntime/include -std=c++20 -Wall -Wextra -Werror -fsyntax-only \
      tests/collectives/gpu/nccl_declarations.cpp
  fi
done
echo "skipped: there is no nccl.h with cuda.h"
exit 77
