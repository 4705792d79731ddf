# SPDX-License-Identifier: BSD-3-Clause
"""From kill -9 of a worker until every worker of the next round has the sum of its first all_reduce."""
import os
import signal
import tempfile
import time

from .. import plots, stamps
from ..page import Column
from ..processes import DEADLINE, job
from ..rounds import Contender, NotDone, WrongResult

TITLE = "From a failure to recovery"
ABOUT = """
All workers reduce in a loop; one is killed with SIGKILL. The launcher stops the others and starts the next round, with
nothing changed in the job (`--max-restarts 3`). Measured until every worker has the sum of its first all_reduce again.

* recovery: all parts. start: until the first line of the new workers' own code runs. import: of `torch`. init:
  `init_process_group`, with finding the others. all_reduce: the first.
* "n of m" runs: in the others the job did not recover: it failed, or hung until it was ended.
* torchrun, own store: with `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1`, which gives each round a store of its own, as ddprun
  always does. By default torchrun's rounds share one, in which the addresses of the round before are still found.
* × ddprun: recovery, divided by ddprun's in the same turn.
"""
RESTARTS = 3
OWN_STORE = ["env", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"]


def parts_of(stamped, killed_at, workers):
    """Of the first round after it in which all ranks have the sum; None if there is none."""
    for restart in range(1, RESTARTS + 1):
        if stamps.all_ranks(stamped, "reduced", workers, restart):
            return stamps.parts(stamped, killed_at, restart)
    return None


def recover(command, path, workers, environment, patience):
    """Kills rank 1 of a job that works, and returns what it did then; raises NotDone if that took longer than the given seconds."""
    with job(*command, environment=environment) as running:
        running.until(lambda: stamps.all_ranks(stamps.read(path), "reduced", workers), "the first round")
        victim = next(stamp.pid for stamp in stamps.of(stamps.read(path), "reduced") if stamp.rank == 1)
        killed_at = time.clock_gettime(time.CLOCK_REALTIME)
        os.kill(victim, signal.SIGKILL)
        running.patience = patience
        try:
            code = running.wait()
        except AssertionError:
            raise NotDone(f"hung, ended after {patience} s") from None
        figures = parts_of(stamps.read(path), killed_at, workers)
        if code != 0 or figures is None:
            raise NotDone(f"exit code {code} after {max(s.restart for s in stamps.read(path))} restarts")
        if left := running.left_over():
            raise WrongResult(f"left over: {left}")
        return figures


def contender(bench, launcher, name, before, worker, workers, environment=None):
    ours = name.startswith("ddprun")
    patience = DEADLINE if ours else 15 if bench.quick else 60
    command = [*before, *launcher.prefix, "--max-restarts", str(RESTARTS), *worker]

    def measure():
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "stamps")
            return recover([path if word == "FILE" else word for word in command], path, workers, environment, patience)

    return Contender(name, command, measure, launcher.version, launcher.not_run, ours)


def contenders(bench, names, cpp, workers):
    script = os.path.join(bench.root, "apps/ddp_bench/worker/torch_worker.py")
    for name in names:
        before = OWN_STORE if "own store" in name else []
        launcher = bench.launcher(name.partition(",")[0], workers)
        worker = [bench.binary("bench_worker") if cpp else script, "FILE", "again"]
        if cpp and launcher.name == "torchrun":
            worker = ["--no-python", *worker]
        if not cpp and not launcher.not_run:
            launcher.not_run = bench.no_torch
        yield contender(bench, launcher, name, before, worker, workers,
                        None if cpp else {"PYTHON_EXEC": bench.python})


def measure(bench):
    plan = {"C++": ["ddprun", "torchrun", "torchrun, own store"],
            "Python": ["ddprun", "ddprun --preload", "torchrun", "torchrun, own store"]}
    if bench.quick:
        plan = {"C++": ["ddprun", "torchrun"], "Python": ["ddprun --preload"]}
    n = 2 if bench.quick else 8
    return [bench.in_turn(f"{n} {kind} workers", list(contenders(bench, names, kind == "C++", n)), runs=5)
            for kind, names in plan.items()]


def write(page, groups):
    parts = [part for part, _ in stamps.PARTS]
    for group in groups:
        page.rows(group, [Column("recovery ms", "total_ms"),
                          *(Column(part, f"{part}_ms", spread=False) for part in parts)], base="ddprun")
    bars = {f"{row.name}, {group.name.split()[1]}": {part: row.median(f"{part}_ms") or 0 for part in parts}
            for group in groups for row in group.rows if row.samples("total_ms")}

    def draw(axes):
        plots.stacked_bars(axes, bars, parts)
        axes.set_xlabel("ms from the kill to the first all_reduce of the next round")

    if bars:
        page.plot("recovery", "Where the time from a kill to the next round's first all_reduce goes", draw)
    page.commands(groups)
