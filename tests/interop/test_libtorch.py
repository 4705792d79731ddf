# SPDX-License-Identifier: BSD-3-Clause
"""A C++ program that links libtorch and libddp, built with the string ABI that libtorch has.

usage: test_libtorch.py DDPRUN LIBDDP INCLUDE_FOLDER COMPILER
"""
import importlib.util
import os
import subprocess
import sys
import tempfile

from jobs import run

ddprun, libddp, include, compiler = sys.argv[1:]
torch = os.path.dirname(importlib.util.find_spec("torch").origin)
source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libtorch_worker.cpp")
# PyTorch's wheels had the old ABI up to 2.6.
abi = subprocess.run([sys.executable, "-c", "import torch; print(int(torch._C._GLIBCXX_USE_CXX11_ABI))"],
                     stdout=subprocess.PIPE, check=True, text=True).stdout.strip()
with tempfile.TemporaryDirectory() as folder:
    program = os.path.join(folder, "libtorch_worker")
    subprocess.run([compiler, "-std=c++20", "-O0", f"-D_GLIBCXX_USE_CXX11_ABI={abi}", "-isystem", f"{torch}/include",
                    f"-I{include}", source, "-o", program, f"-L{torch}/lib", "-Wl,--no-as-needed", "-ltorch",
                    "-ltorch_cpu", "-lc10", libddp, f"-Wl,-rpath,{torch}/lib:{os.path.dirname(libddp)}"], check=True)
    out, err = run(ddprun, "--nproc_per_node", 2, program, patience=120)
assert sorted(out.splitlines()) == [f"rank {rank} of 2 done" for rank in range(2)], f"{out}\n{err}"
print(f"string ABI {abi}")
