# SPDX-License-Identifier: BSD-3-Clause
"""Collectives on the CPU: libddp beside plain Gloo, two MPIs, torch's Gloo, and what memory allows."""
import os

from .. import machine, plots
from ..page import number
from ..processes import json_lines
from ..rounds import Contender, WrongResult

TITLE = "Collectives on the CPU"
ABOUT = """
Time of a call in µs, on the slowest rank; float32, sums. All ranks are on this machine. Each library's result is checked
at each size before it is timed.

* size: of a rank's longer buffer.
* libddp with its backend "ddp", Open MPI and MPICH go through shared memory inside a machine; libddp's backend "gloo",
  and Gloo called directly, talk over TCP. torch: `torch.distributed` with the Gloo of its own.
* its buffers: libddp with buffers of `ProcessGroup::allocate()`, which all ranks use in place.
* Before each call every line of the buffers is written, as by a program that computes what it communicates.
* bound: each rank reads what it must read and writes what it must write, each byte once, all ranks at the same time;
  nothing is communicated. Measured by the same processes as libddp, in blocks that alternate.
* The root of a broadcast may be ahead of the others: a small one costs an MPI's ranks less than a message takes.

With more ranks than CPUs it is the scheduler that is measured, above all for libraries that wait by polling.
"""
COLLECTIVES = ["all_reduce", "broadcast", "all_gather", "reduce_scatter"]
LIBRARIES = ["libddp", "its buffers", "libddp over Gloo", "Gloo", "Open MPI", "MPICH", "torch", "bound"]
OF_LIBDDP = {"libddp": "libddp", "its buffers": "libddp_in_place", "bound": "memory"}  # measured by one program


def sizes(bench):
    """4 B to 64 MiB."""
    return [4, 64 << 10] if bench.quick else [4 ** i for i in range(1, 14)]


def figures_of(lines, contender, collectives, ranks, sizes):
    """{'all_reduce 4096': us, ...}"""
    own = [line for line in lines if line["contender"] == contender and line["ranks"] == ranks and line["median_us"] > 0]
    figures = {f"{line['collective']} {line['bytes']}": line["median_us"] for line in own}
    # A block for each rank needs an element for each rank.
    wanted = {f"{collective} {size}" for collective in collectives for size in sizes
              if size >= 4 * ranks or collective in ("all_reduce", "broadcast")}
    if missing := wanted - set(figures):
        raise WrongResult(f"{contender} on {ranks} ranks did not measure {', '.join(sorted(missing))}")
    return figures


def contenders(bench, ranks, given=None):
    measured = sizes(bench) if bench.quick or given is None else given
    plan = ["--collectives", *COLLECTIVES, "--sizes", *map(str, measured), "--seconds", "0" if bench.quick else "0.1"]

    def lines(command, environment=None):
        return json_lines(command, {"GLOO_SOCKET_IFNAME": "lo", **(environment or {})}, deadline=600)

    def contender(name, launcher, told, command, version="", not_run=""):
        words = [*launcher.prefix, *command]

        def measure():
            result = lines(words, {"PYTHON_EXEC": bench.python})
            return figures_of(result, told, COLLECTIVES, ranks, measured)

        return Contender(name, words, measure, version or launcher.version, launcher.not_run or not_run)

    ours = bench.launcher("ddprun", ranks)
    program = [*ours.prefix, bench.binary("ddp_bench"), "collectives", *plan, "--contenders"]
    libddp, gloo = [*program, *OF_LIBDDP.values()], [*program, "gloo"]
    latest = []  # what libddp's program said in this turn

    def measure_libddp():
        latest[:] = lines(libddp)
        return figures_of(latest, "libddp", COLLECTIVES, ranks, measured)

    yield Contender("libddp", libddp, measure_libddp, ours.version)
    for name in "its buffers", "bound":
        yield Contender(name, libddp, lambda name=OF_LIBDDP[name]: figures_of(latest, name, COLLECTIVES, ranks,
                                                                             measured))
    over_gloo = [*program, "libddp", "--backend", "gloo"]
    yield Contender("libddp over Gloo", over_gloo,
                    lambda: figures_of(lines(over_gloo), "libddp", COLLECTIVES, ranks, measured), ours.version)
    yield Contender("Gloo", gloo,  # Debian's has no reduce_scatter
                    lambda: figures_of(lines(gloo), "gloo", COLLECTIVES[:3], ranks, measured),
                    machine.package_version("libgloo-dev"))
    for name, package in ("Open MPI", "libopenmpi-dev"), ("MPICH", "libmpich-dev"):
        told = name.lower().replace(" ", "")
        binary = bench.binary(f"ddp_bench_{told}")
        not_built = "" if os.path.exists(binary) else f"{os.path.basename(binary)} is not built (Debian's {package})"
        yield contender(name, bench.launcher(name, ranks), told, [binary, *plan], not_run=not_built)
    script = os.path.join(bench.root, "apps/ddp_bench/collectives/torch_collectives.py")
    torch_version = "" if bench.no_torch else bench.torch_version
    yield contender("torch", ours, "torch", [script, *plan], torch_version, bench.no_torch)


def measure(bench):
    return [bench.in_turn(f"{ranks} ranks", list(contenders(bench, ranks)), runs=5, facts={"ranks": ranks})
            for ranks in ([2] if bench.quick else [2, 4])]


def human(size):
    for unit in "B", "KiB", "MiB":
        if size < 1024 or unit == "MiB":
            return f"{size} {unit}"
        size //= 1024


def microseconds(value):
    return number(value, 0 if value is None or value >= 100 else 1 if value >= 10 else 2)


def cell(row, figure):
    median = row.median(figure) if row else None
    if median is None or len(row.samples(figure)) < 2:
        return microseconds(median)
    lower, upper = row.quartiles(figure)
    return f"{microseconds(median)} ({microseconds(lower)}–{microseconds(upper)})"


def write(page, groups):
    for group in groups:
        measured = [name for name in LIBRARIES if group.row(name) and group.row(name).runs]
        for collective in COLLECTIVES:
            figures = {int(figure.split()[1]): figure for figure in group.row("libddp").runs[0]
                       if figure.split()[0] == collective}
            page.table([f"{collective}, {group.name}", *(f"{name} µs" for name in measured)],
                       [[human(size), *(cell(group.row(name), figure) for name in measured)]
                        for size, figure in sorted(figures.items())])

            def draw(axes, group=group, collective=collective, figures=figures, measured=measured):
                series = {name: [(size, group.row(name).median(figure)) for size, figure in figures.items()
                                 if group.row(name).median(figure)] for name in measured}
                plots.curves(axes, {name: points for name, points in series.items() if points})
                axes.set_xlabel(f"bytes, {collective}, {group.name}")
                axes.set_ylabel("µs")

            page.plot(f"collectives_{collective}_{group.facts['ranks']}",
                      f"Time of {collective} against size, {group.name}", draw)
    for row in (row for row in groups[0].rows if row.not_run):
        page.text(f"{row.name}: not run: {row.not_run}")
    page.text(f"Runs of each: {len(groups[0].row('libddp').runs)}.")
    page.commands(groups)
