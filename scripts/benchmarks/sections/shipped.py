# SPDX-License-Identifier: BSD-3-Clause
"""The files that ship beside GCC's release build of the same sources: collectives, torch over "ddp", store, output."""
import dataclasses
import os
import tempfile

from .. import shipped
from ..page import number, times
from ..processes import timed
from ..rounds import Contender
from . import collectives, store, torch_collectives

TITLE = "The files that ship"
ABOUT = """
What `pip install` and the container image bring (clang, `-O2` and `-Os`, libc++, for glibc 2.28) beside what the preset `release`
builds of the same sources on this machine (GCC, `-O3`, libstdc++). Other sections that were measured after 2026-11-28 are
of the files that ship; those that were measured before are of a release build.

* ratio: of shipped by release, pair by pair; above 1, what ships is slower.
* all_reduce and the others: µs of a call on the slowest of 2 ranks. torch: `torch.distributed` over "ddp", µs, and ms for a
  step of DistributedDataParallel.
* store: CPU of the server for an operation, in µs.
  What ships is slower with many keys: libc++ checks each index in more places (multi_get 512 without these checks: 1.01).
* output: CPU of ddprun and 2 workers for a megabyte that they write, which goes to a file and to the console, in ms.
  ddprun itself is `-Os`, since `-O2` makes the file a fifth larger.
"""
MEGABYTES = 200
SIZES = [4, 4 << 10, 64 << 10, 1 << 20, 16 << 20]


def output(bench):
    megabytes = 2 if bench.quick else MEGABYTES

    def run():
        with tempfile.TemporaryDirectory() as folder:
            lines = os.path.join(folder, "lines")
            with open(lines, "w") as file:
                file.write((79 * "x" + "\n") * (megabytes * 10**6 // 80))
            spent = timed([bench.binary("ddprun"), "--nproc_per_node", "2", "--tee", "3", "--log-dir", folder, "cat", lines])
        return {"output": spent.cpu_ms / (2 * megabytes)}

    return run


def contenders(bench, name, version, not_run, torch_not_run):
    """The three parts of a build's figures, each measured by the section that has it."""
    parts = [next(collectives.contenders(bench, 2, SIZES)).measure,
             store.contender(bench, "ddp_store", version, "").measure, output(bench)]
    if not torch_not_run:
        parts.append(torch_collectives.contender(bench, 2, seconds=0.2).measure)

    def measure():
        figures = {}
        for part in parts:
            figures |= part()
        return {figure: value for figure, value in figures.items() if is_shown(figure)}

    return Contender(name, ["scripts/bench", "shipped"], measure, version, not_run, ours=True)


def is_shown(figure):
    """Of a store's figures those of CPU; nothing that does not depend on the build."""
    if figure.startswith(("gloo ", "alone ")) or figure == "mib":
        return False
    return ": " not in figure or figure.endswith(": cpu_us")


def measure(bench):
    not_run = shipped.why_not(bench.root)
    folder = bench.root if not_run else shipped.assemble(bench.root, bench.beside)
    builds = {"shipped": (folder, not_run), "release": (bench.beside, "")}
    rows = [contenders(dataclasses.replace(bench, build=build), name, bench.launcher("ddprun", 1).version, why, bench.no_torch)
            for name, (build, why) in builds.items()]
    return [bench.in_turn("2 ranks", rows, runs=12)]


def human(figure):
    if figure.startswith("ddp "):
        return "torch: " + torch_collectives.human(figure)
    if ": " in figure:
        return "store: " + figure.removesuffix(": cpu_us")
    name, _, size = figure.partition(" ")
    return f"{name} {collectives.human(int(size))}" if size else name


def write(page, groups):
    [group] = groups
    ours, theirs = group.rows
    if ours.not_run:
        return page.rows(group, [])
    digits = lambda value: 0 if value >= 1000 else 1 if value >= 10 else 3
    lines = [[human(figure), *(number(row.median(figure), digits(row.median(figure))) for row in (ours, theirs)),
              times(ours.ratio(theirs, figure))] for figure in ours.runs[0]]
    page.table(["load", "shipped", "release", "ratio"], lines)
    page.text(f"Runs of each: {len(ours.runs)}.")
