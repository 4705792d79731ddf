# SPDX-License-Identifier: BSD-3-Clause
"""torch.distributed over the backend "ddp" and over PyTorch's Gloo: all_reduce and DistributedDataParallel."""
import os

from ..page import number
from ..processes import json_lines
from ..rounds import Contender, WrongResult

TITLE = "torch.distributed over libddp"
ABOUT = """
PyTorch's calls over the backend "ddp" ([torch_distributed.md](torch_distributed.md)) and over its own Gloo, in blocks
that alternate within one process; float32, sums, on the slowest rank, buffers written before each call.

* Python's: what all_reduce takes in a group of one rank, which has nobody to talk to. It is part of ddp's figure.
* DDP step: forward, backward and SGD of three linear layers, batch 8, unmodified DistributedDataParallel.
"""


def contender(bench, ranks, seconds=1):
    sizes = [4, 64 << 10] if bench.quick else [4, 4 << 10, 64 << 10, 1 << 20, 16 << 20]
    models = ["0.4"] if bench.quick else ["0.4", "6"]
    wanted = {f"{name} {size}" for name in ("ddp", "gloo", "alone") for size in sizes}
    wanted |= {f"{name} step {model} M" for name in ("ddp", "gloo") for model in models}
    launcher = bench.launcher("ddprun", ranks)
    script = os.path.join(bench.root, "apps/ddp_bench/collectives/torch_backends.py")
    words = [*launcher.prefix, script, "--seconds", "0.05" if bench.quick else str(seconds), "--sizes", *map(str, sizes),
             "--parameters", *models]
    environment = {"PYTHON_EXEC": bench.python, "PYTHONPATH": os.path.join(bench.root, "runtime/python"),
                   "PATH": os.path.join(bench.build, "bin") + os.pathsep + os.environ["PATH"]}

    def run():
        [figures] = json_lines(words, environment, deadline=600)
        if missing := wanted - set(figures):
            raise WrongResult(f"not measured: {', '.join(sorted(missing))}")
        return figures

    return Contender("torch.distributed", words, run, "" if bench.no_torch else bench.torch_version, bench.no_torch,
                     ours=True)


def measure(bench):
    return [bench.in_turn(f"{ranks} ranks", [contender(bench, ranks)], runs=5, facts={"ranks": ranks})
            for ranks in ([2] if bench.quick else [2, 4])]


def human(figure):
    what = figure.split(" ", 1)[1]
    if not what.isdigit():
        return f"DDP {what}, ms"
    size = int(what)
    for shift, unit in (20, "MiB"), (10, "KiB"), (0, "B"):
        if size >> shift:
            return f"all_reduce {size >> shift} {unit}, µs"


def write(page, groups):
    for group in groups:
        [row] = group.rows
        if row.not_run or not row.runs:
            page.text(f"not run: {row.not_run or row.failures}")
            continue
        lines = []
        for figure in (figure for figure in row.runs[0] if figure.startswith("ddp ")):
            what = figure.removeprefix("ddp ")
            ours, theirs, alone = (row.median(f"{name} {what}") for name in ("ddp", "gloo", "alone"))
            lines.append([human(figure), number(ours, 1), number(theirs, 1), f"{theirs / ours:.1f}x",
                          number(alone, 1) if alone else ""])
        page.table([group.name, "ddp", "Gloo", "Gloo / ddp", "Python's"], lines)
    page.commands(groups)
