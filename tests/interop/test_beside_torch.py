# SPDX-License-Identifier: BSD-3-Clause
"""libddp and torch.distributed in one process, each with its own Gloo.

libtorch's symbols are made global, as in a program that links it, so that every lookup without deep binding finds them
first. (Python loads them as local symbols, with which nothing could collide.)

usage: test_beside_torch.py DDPRUN LIBDDP
"""
import os
import sys

from jobs import run

ddprun, libddp = sys.argv[1:]
worker = os.path.join(os.path.dirname(os.path.abspath(__file__)), "workers", "beside_torch_worker.py")
for first in "torch", "libddp":
    out, err = run(ddprun, "--nproc_per_node", 2, worker, libddp, first,
                   environment={"PYTHON_EXEC": sys.executable, "TORCH_USE_RTLD_GLOBAL": "1"}, patience=300)
    done = [f"rank {rank} of 2 done, {first} first" for rank in range(2)]
    assert sorted(line for line in out.splitlines() if line.startswith("rank ")) == done, f"{out}\n{err}"
    print(f"loaded first: {first}")
