# SPDX-License-Identifier: BSD-3-Clause
"""all_reduce between two nodes, network namespaces joined by a cable of 1 Gb/s, beside Open MPI over TCP and the wire."""
import os
import shutil

from ..page import number
from ..processes import json_lines
from ..rounds import Contender
from .collectives import cell, figures_of, human

TITLE = "Collectives between two nodes"
ABOUT = """
Time of an all_reduce in µs, on the slowest rank; float32, sums. The nodes are network namespaces of this machine with one
rank each, on a CPU of its own, joined by a cable that tc holds to 1 Gb/s each way (`scripts/benchmarks/two_nodes`).

* size: of a rank's buffer.
* wire: how long a rank's bytes take on such a cable, with Ethernet's, IP's and TCP's headers: 117.7 MB/s. There and back
  through the system is not counted, so for small sizes nothing comes near.
* × wire: libddp's median, divided by the wire's.
* tc lets the first 128 KiB after a pause pass at once, so small calls may be faster than the wire.
"""
WIRE = 117.7  # bytes per µs


def sizes(bench):
    """4 B to 64 MiB."""
    return [4, 64 << 10] if bench.quick else [4, 256, 4 << 10, 64 << 10, 256 << 10, 1 << 20, 16 << 20, 64 << 20]


def measure(bench):
    plan = ["--sizes", *map(str, sizes(bench)), "--seconds", "0" if bench.quick else "0.5"]
    why_not = "" if (os.cpu_count() or 1) > 1 and shutil.which("tc") else "needs two CPUs and tc (Debian's iproute2)"

    def contender(name, told, program, rank, environment, version, not_run):
        on_own_cpu = f"exec taskset -c ${rank} {program} {' '.join(plan)}"
        command = [*environment, os.path.join(bench.root, "scripts/benchmarks/two_nodes"), "bash", "-c", on_own_cpu]
        binaries = {"DDPRUN": os.path.dirname(bench.binary("ddprun"))}
        return Contender(name, command, lambda: figures_of(json_lines(command, binaries, deadline=300), told,
                                                           ["all_reduce"], 2, sizes(bench)), version, why_not or not_run)

    ddprun, mpi = bench.launcher("ddprun", 1), bench.launcher("Open MPI", 2)
    for_us = "ddp_bench collectives --contenders libddp"
    needs_root = "" if os.geteuid() == 0 else "two_nodes starts it as root only"
    group = bench.in_turn("two nodes", [
        contender("libddp", "libddp", for_us, "RANK", [], ddprun.version, ddprun.not_run),
        contender("libddp over Gloo", "libddp", for_us + " --backend gloo", "RANK", [], ddprun.version, ddprun.not_run),
        contender("Open MPI", "openmpi", "ddp_bench_openmpi", "OMPI_COMM_WORLD_RANK", ["env", "MPI=yes"], mpi.version,
                  mpi.not_run or needs_root),
    ], runs=5)
    return [group]


def write(page, groups):
    group = groups[0]
    measured = [row for row in group.rows if row.runs]
    for row in (row for row in group.rows if row.not_run):
        page.text(f"{row.name}: not run: {row.not_run}")
    if not measured or measured[0].name != "libddp":
        return
    lines = []
    for figure in measured[0].runs[0]:
        size = int(figure.split()[1])
        median = measured[0].median(figure)
        lines.append([human(size), *(cell(row, figure) for row in measured), number(size / WIRE, 2 if size < 4096 else 0),
                      number(median / (size / WIRE), 2)])
    page.table(["all_reduce, 2 nodes", *(f"{row.name} µs" for row in measured), "wire µs", "× wire"], lines)
    page.text(f"Runs of each: {len(measured[0].runs)}.")
    page.commands(groups)
