# SPDX-License-Identifier: BSD-3-Clause
"""NCCL's all_reduce through libddp, beside NCCL's own call."""
import json
import subprocess

from .. import plots
from .collectives import cell, figures_of, human, sizes
from ..page import number
from ..processes import json_lines
from ..rounds import Contender

TITLE = "all_reduce on GPUs"
ABOUT = """
As NCCL's tests measure it: calls are put on a stream one after the other, float32, in place; a call's time is its share of
the time until the stream is done, on the slowest rank. Blocks of calls through libddp alternate with blocks of
`ncclAllReduce` on the same communicator. Results are checked at each size before they are timed.

* GB/s: bus bandwidth, bytes / time × 2(n-1)/n.
"""
NAMES = {"libddp": "libddp", "NCCL": "nccl"}


def gpus(bench):
    """How many there are, and why not more."""
    said = subprocess.run([bench.binary("ddp_bench"), "nccl", "--count"], stdout=subprocess.PIPE, text=True, check=True)
    counted = json.loads(said.stdout)
    return counted["gpus"], counted.get("why", "")


def contenders(bench, ranks, not_run):
    launcher = bench.launcher("ddprun", ranks)
    command = [*launcher.prefix, bench.binary("ddp_bench"), "nccl", "--sizes", *map(str, sizes(bench)), "--seconds",
               "0" if bench.quick else "0.2"]
    latest = []  # what the program said in this turn, of both

    def of(name):
        def measure():
            if name == "libddp":  # the first of them
                latest[:] = json_lines(command, deadline=600)
            return figures_of(latest, NAMES[name], ["all_reduce"], ranks, sizes(bench))

        return measure

    return [Contender(name, command, of(name), launcher.version if name == "libddp" else "", not_run) for name in NAMES]


def measure(bench):
    count, why = gpus(bench)
    if count < 2:
        not_run = f"no GPU ({why.split(':')[0]})" if count == 0 else "one GPU has nobody to talk with"
        return [bench.in_turn("GPUs", contenders(bench, 2, not_run), runs=5, facts={"ranks": 2})]
    return [bench.in_turn(f"{ranks} GPUs", contenders(bench, ranks, ""), runs=5, facts={"ranks": ranks})
            for ranks in sorted({2, count})]


def gb_s(size, us, ranks):
    return 2 * (ranks - 1) / ranks * size / us / 1e3


def write(page, groups):
    for group in groups:
        rows = [group.row(name) for name in NAMES]
        ranks = group.facts["ranks"]
        figures = {int(figure.split()[1]): figure for figure in rows[0].runs[0]}
        lines = []
        for size, figure in sorted(figures.items()):
            line = [human(size)]
            for row in rows:
                line += [cell(row, figure), number(gb_s(size, row.median(figure), ranks), 2)]
            lines.append([*line, number(rows[0].ratio(rows[1], figure), 2)])
        page.table([f"all_reduce, {group.name}", *(head for name in NAMES for head in (f"{name} µs", "GB/s")),
                    "libddp / NCCL"], lines)

        def draw(axes, rows=rows, figures=figures, ranks=ranks):
            plots.curves(axes, {row.name: [(size, gb_s(size, row.median(figure), ranks))
                                           for size, figure in figures.items()] for row in rows})
            axes.set_xlabel("bytes")
            axes.set_ylabel("GB/s")

        page.plot(f"nccl_{ranks}", f"Bus bandwidth of all_reduce against size, {group.name}", draw)
    page.commands(groups)
