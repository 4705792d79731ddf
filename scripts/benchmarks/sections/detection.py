# SPDX-License-Identifier: BSD-3-Clause
"""From kill -9 of a worker until its launcher has told another one, which did nothing wrong."""
import contextlib
import os
import select
import signal
import tempfile
import time

from .. import plots, stamps
from ..page import Column
from ..processes import free_port, job
from ..rounds import Contender, NotDone, WrongResult

TITLE = "Detection of a failure"
ABOUT = """
Two workers wait; after a while one is killed with SIGKILL, and the launcher decides that the job has failed. Measured
until the other one, which nothing was wrong with, has ended by the launcher's signal. The kernel first takes back the
memory of the one that was killed, and only then reports its death: a launcher that waits for that report waits the
longer, the more there was. ddprun sees it before: workers of libddp show it a sign of life, and others that are large it looks at every 4 ms
(`--monitor-interval`). Where no restart is left, ddprun first takes the stacks of the others, in half a second at most;
not here (`--stacks-timeout 0`).

* told: from the kill to the end of the other worker, which is small and has nothing to clean up.
* libddp: workers that have joined a job through libddp. plain: any program, which talks to no launcher.
* two agents: each worker has an agent of its own (`--nnodes 2`), both on this machine.
* × ddprun, plain: the column "told", divided by the figure of ddprun with any program in the same turn.
"""

GROWN_UP = 0.7  # seconds that workers have run, as they have where it matters: ddprun looks twice a second which are large


def told(running, path, patience):
    """Kills rank 1 and waits for rank 0 to end, at most this many seconds; returns milliseconds."""
    running[0].until(lambda: stamps.all_ranks(stamps.read(path), "ready", 2), "two workers")
    time.sleep(GROWN_UP)
    pids = {stamp.rank: stamp.pid for stamp in stamps.read(path)}
    other = os.pidfd_open(pids[0])
    try:
        watch = select.poll()
        watch.register(other, select.POLLIN)
        start = time.perf_counter()
        os.kill(pids[1], signal.SIGKILL)
        if not watch.poll(1000 * patience):
            raise NotDone(f"the other worker was not told within {patience} s")
        return 1e3 * (time.perf_counter() - start)
    finally:
        os.close(other)


def measure_once(commands, path, ours, patience):
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(job(*command)) for command in commands]
        took = told(running, path, patience)
        for each in running:
            if each.wait() == 0:
                raise WrongResult(f"a job whose worker was killed succeeded; {each.said()}")
            if ours and (left := each.left_over()):
                raise WrongResult(f"left over: {left}")
    return {"told_ms": took}


def contender(bench, name, agents, mib):
    """name: launcher, and behind a comma what its workers are."""
    launcher_name, _, kind = name.partition(", ")
    launcher = bench.launcher(launcher_name, 2 // agents)
    ours = launcher_name == "ddprun"
    patience = 60 if ours else 3 if bench.quick else 10
    worker = [bench.binary("bench_worker"), "FILE", "hold", str(mib), *([] if kind == "libddp" else ["plain"])]
    if launcher_name == "torchrun":
        worker.insert(0, "--no-python")
    if ours:
        launcher.prefix += ["--stacks-timeout", "0"]
    if agents == 2:
        launcher.prefix += ["--nnodes", "2", "--node_rank", "NODE", "--master_addr", "127.0.0.1", "--master_port", "PORT"]

    def measure():
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "stamps")
            words = {"FILE": path, "PORT": str(free_port())}
            commands = [[{**words, "NODE": str(node)}.get(word, word) for word in [*launcher.prefix, *worker]]
                        for node in range(agents)]
            return measure_once(commands, path, ours, patience)

    return Contender(name, [*launcher.prefix, *worker], measure, launcher.version, launcher.not_run, ours)


def measure(bench):
    groups = []
    for agents, names in ((1, ["ddprun, libddp", "ddprun, plain", "torchrun, plain", "Open MPI, plain", "MPICH, plain"]),
                          (2, ["ddprun, libddp", "ddprun, plain", "torchrun, plain"])):
        for mib in (10, 128 if bench.quick else 1024):
            size = "1 GiB" if mib == 1024 else f"{mib} MiB"
            name = f"{'one agent' if agents == 1 else 'two agents'}, {size}"
            # The others do nothing else for a large worker than for a small one, and take seconds.
            chosen = [each for each in names if each.startswith("ddprun") or mib == 10 or not bench.quick]
            groups.append(bench.in_turn(name, [contender(bench, each, agents, mib) for each in chosen], runs=9))
    return groups


def write(page, groups):
    for group in groups:
        page.rows(group, [Column("told ms", "told_ms", digits=2)], base="ddprun, plain")
    names = [name for name in dict.fromkeys(row.name for group in groups for row in group.rows)
             if any((row := group.row(name)) and row.samples("told_ms") for group in groups)]

    def draw(axes):
        plots.grouped_bars(axes, groups, "told_ms", names)
        axes.set_yscale("log")
        axes.set_ylabel("ms from the kill")

    if names:
        page.plot("detection", "From a kill until the other worker hears of it, in ms", draw)
    page.commands(groups)
