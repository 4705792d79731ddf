# SPDX-License-Identifier: BSD-3-Clause
"""`ddprun stacks` over a real PyTorch job that hangs: it names the rank and the line.

usage: test_stacks.py DDPRUN
"""
import os
import shutil
import signal
import sys

from jobs import Job, run, until

ddprun = os.path.abspath(sys.argv[1])
script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "workers/hangs.py")
beside = os.path.join(os.path.dirname(sys.executable), "py-spy")
if not os.path.exists(beside) and not shutil.which("py-spy"):
    print("skipped: there is no py-spy (pip install py-spy)")
    sys.exit(77)


def line_of(words):
    with open(script) as file:
        return 1 + [words in line for line in file].index(True)


def expected(out):
    """Whether all have reached their last place. The ranks print before they are there."""
    return (f"rank 2: in clock_nanosleep, called at hangs.py:{line_of('    time.sleep(1000)')} (load)\n" in out
            and f"ranks 0-1, 3: in all_reduce, called at hangs.py:{line_of('    dist.all_reduce')} (step)\n" in out)


with Job(ddprun, "--nproc_per_node", "4", "--preload", "torch", script,
         environment={"PYTHON_EXEC": sys.executable, "OMP_NUM_THREADS": "1"}, patience=120) as job:
    job.until(lambda: job.out().count("hangs") == 4, "all ranks")
    out = ""

    def stacks():
        global out
        out, _ = run(ddprun, "stacks", str(job.pid))
        if "py-spy: Permission" in out:
            print("skipped: no process may be traced here (ptrace_scope, or a container without SYS_PTRACE)")
            sys.exit(77)
        return expected(out)

    try:
        until(stacks, "the stacks")
    except AssertionError:
        print(out)
        raise
    assert out.index("rank 2:") < out.index("ranks 0-1, 3:"), out
    assert out.count("thread prefetcher: ") == 2, out
    print(out)
    job.signal(signal.SIGTERM)
    job.wait()
