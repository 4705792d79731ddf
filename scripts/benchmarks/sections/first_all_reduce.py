# SPDX-License-Identifier: BSD-3-Clause
"""From a launcher's start until every worker has the sum of the first all_reduce, and what that time goes into."""
import os
import tempfile

from .. import plots, stamps
from ..page import Column
from ..processes import timed
from ..rounds import Contender, WrongResult

TITLE = "To the first all_reduce"
ABOUT = """
From the launcher's exec until every worker has the sum of its first all_reduce (of 8 bytes). Workers write down when they
were how far; a part ends when its last worker is through.

* to first all_reduce: all parts but the last. CPU: of the whole job, to its end.
* start: until the first line of the workers' own code runs. import: of `torch`. init: `init_process_group` or
  `MPI_Init`, with finding the others. all_reduce: the first. end: from there until the launcher has exited.
* ddprun --preload: `--preload torch`. One process imports it for all workers, so that its time is in start, once.
* × ddprun: time to the first all_reduce, divided by ddprun's in the same turn.

With more workers than CPUs, MPI's libraries wait by polling, which takes the CPU from those they wait for.
"""
PARTS = [*(part for part, _ in stamps.PARTS), "end"]


def parts_of(stamped, times, workers):
    """Milliseconds of each part; checks that every rank was there."""
    if not stamps.all_ranks(stamped, "reduced", workers):
        ranks = sorted(stamp.rank for stamp in stamps.of(stamped, "reduced"))
        raise WrongResult(f"{workers} ranks were to have the sum; these had: {ranks}")
    figures = stamps.parts(stamped, times.started)
    return {**figures, "end_ms": times.wall_ms - figures["total_ms"], "cpu_ms": times.cpu_ms}


def contender(launcher, name, worker, workers, environment=None, not_run=""):
    """worker: its command, in which FILE stands for where it writes down how far it is."""
    command = [*launcher.prefix, *worker]

    def measure():
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "stamps")
            times = timed([path if word == "FILE" else word for word in command], environment)
            return parts_of(stamps.read(path), times, workers)

    return Contender(name, command, measure, launcher.version, launcher.not_run or not_run,
                      ours=launcher.name.startswith("ddprun"))


def cpp_contenders(bench, workers):
    yield contender(bench.launcher("ddprun", workers), "libddp", [bench.binary("bench_worker"), "FILE", "first"], workers)
    for name, package in ("Open MPI", "libopenmpi-dev"), ("MPICH", "libmpich-dev"):
        binary = bench.binary(f"bench_worker_{name.lower().replace(' ', '')}")
        not_built = "" if os.path.exists(binary) else f"{os.path.basename(binary)} is not built (Debian's {package})"
        yield contender(bench.launcher(name, workers), name, [binary, "FILE"], workers, not_run=not_built)


def python_contenders(bench, workers):
    script = os.path.join(bench.root, "apps/ddp_bench/worker/torch_worker.py")
    for name in "ddprun", "ddprun --preload", "torchrun":
        launcher = bench.launcher(name, workers)
        yield contender(launcher, name, [script, "FILE", "first"], workers, {"PYTHON_EXEC": bench.python},
                        not_run=bench.no_torch)


def measure(bench):
    groups = [bench.in_turn(f"{n} C++ workers", list(cpp_contenders(bench, n)), runs=15, facts={"base": "libddp"})
              for n in (2, 8)]
    n = 2 if bench.quick else 8
    return [*groups, bench.in_turn(f"{n} Python workers", list(python_contenders(bench, n)), runs=5,
                                   facts={"base": "ddprun"})]


def write(page, groups):
    columns = [Column("to first all_reduce ms", "total_ms"), Column("CPU ms", "cpu_ms", spread=False)]
    for group in groups:
        page.rows(group, columns + [Column(part, f"{part}_ms", spread=False) for part in PARTS],
                  base=group.facts["base"])
        bars = {row.name: {part: row.median(f"{part}_ms") or 0 for part in PARTS} for row in group.rows if row.runs}

        if not bars:
            continue

        def draw(axes, group=group, bars=bars):
            plots.stacked_bars(axes, bars, [part for part in PARTS if any(bar[part] for bar in bars.values())])
            axes.set_xlabel(f"ms, {group.name}")

        page.plot(f"first_all_reduce_{group.name.lower().replace(' ', '_').replace('++', 'pp')}",
                  f"Where the time to the first all_reduce goes, {group.name}", draw)
    page.commands(groups)
