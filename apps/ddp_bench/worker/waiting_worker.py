# SPDX-License-Identifier: BSD-3-Clause
"""A worker that waits at a line that depends on its rank, so that its stack can be taken; a signal ends it.

usage: waiting_worker.py FILE [torch]      with torch it has imported PyTorch before
"""
import os
import signal
import sys
import time

if "torch" in sys.argv[2:]:
    import torch  # noqa: F401


def even():
    signal.pause()


def odd():
    signal.pause()


with open(sys.argv[1], "a") as file:
    file.write(f"{os.environ['RANK']} 0 ready {os.getpid()} {time.clock_gettime_ns(time.CLOCK_REALTIME)}\n")
(odd if int(os.environ["RANK"]) % 2 else even)()
