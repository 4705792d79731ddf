# SPDX-License-Identifier: BSD-3-Clause
"""Where all workers of a job are: one command for the job, beside a debugger for each process."""
import os
import re
import shutil
import sys
import tempfile

from .. import machine, plots, stamps
from ..page import Column
from ..processes import cpu_ms, job, marked, stat_of, timed
from ..rounds import Contender, Group, Row, WrongResult

TITLE = "Stacks of all ranks"
ABOUT = """
N workers of one job wait, in Python the ranks with an even and with an odd number at different lines. Measured from the
command's start until it has ended with the stacks of all of them.

* wall: of the command. CPU: of the command and of everything that it starts; for ddprun with what the job's own processes
  do for it, to 10 ms.
* right: ranks whose stack has the function and the line in which the rank waits.
* ddprun stacks: `ddprun stacks JOB`. It shows Python's functions and below them the native ones, by py-spy and eu-stack.
* py-spy, gdb: `py-spy dump` and `gdb -p` by hand for each process, one after the other or all at once. `--native` also shows
  native functions, as ddprun does. Nobody has to find the processes first: the script knows them.
* × ddprun: wall, divided by ddprun's in the same turn.
"""
WORKERS = "apps/ddp_bench/worker/"
IN_TURN, AT_ONCE = 'for pid; do {} >OUT/$pid 2>&1; done', 'for pid; do {} >OUT/$pid 2>&1 & done; wait'


def lines_with(path, words):
    with open(path) as file:
        return [number for number, line in enumerate(file, 1) if words in line]


def of_ranks(text):
    """Returns {rank: its entry} of what `ddprun stacks` has printed."""
    found = {}
    for ranks, entry in re.findall(r"^ranks? ([\d, -]+): (.*(?:\n .*)*)", text, re.MULTILINE):
        for part in ranks.split(", "):
            first, _, last = part.partition("-")
            found |= dict.fromkeys(range(int(first), int(last or first) + 1), entry)
    return found


def shows(entry, function, file, line):
    """Whether a stack has this place as ddprun, py-spy or gdb print it."""
    place = rf"{re.escape(file)}:{line}\b"
    return re.search(rf"\b{function}\b[^\n]*{place}", entry) is not None


class Waiting:
    """A job whose workers wait, and where."""

    def __init__(self, bench, running, path, places):
        self.bench, self.running, self.path, self.places = bench, running, path, places
        workers = len(places)
        try:
            running.until(lambda: stamps.all_ranks(stamps.read(path), "ready", workers), f"{workers} workers")
            self.pids = {stamp.rank: stamp.pid for stamp in stamps.read(path)}
            for pid in self.pids.values():  # it says that it is ready just before it waits
                running.until(lambda pid=pid: stat_of(pid)[0] == "S", "a worker that waits")
        except AssertionError as late:
            raise WrongResult(late) from None
        self.own = [pid for pid in marked(running.mark) if pid not in self.pids.values()]

    def right(self, stack_of):
        """Returns of how many ranks the stack is right; stack_of: {rank: text}."""
        return sum(shows(stack_of.get(rank, ""), *place) for rank, place in enumerate(self.places))

    def ddprun(self):
        command = [self.bench.binary("ddprun"), "stacks", str(self.running.pid)]

        def measure():
            with tempfile.TemporaryDirectory() as folder:
                out, before = os.path.join(folder, "out"), cpu_ms(self.own)
                times = timed(command, out=out)
                with open(out) as file:
                    text = file.read()
            right = self.right(of_ranks(text))
            if right != len(self.places) and "it took too long" not in text:
                raise WrongResult(f"{right} of {len(self.places)} ranks are where they are: {text}")
            return {"wall_ms": times.wall_ms, "cpu_ms": times.cpu_ms + cpu_ms(self.own) - before, "right": right}

        version = self.bench.launcher("ddprun", 1).version
        return Contender("ddprun stacks", [*command[:2], "JOB"], measure, version, ours=True)

    def by_hand(self, name, tool, loop, version, not_run=""):
        words = loop.format(tool)

        def measure():
            with tempfile.TemporaryDirectory() as folder:
                times = timed(["sh", "-c", words.replace("OUT", folder), "sh", *map(str, self.pids.values())])
                stack_of = {}
                for rank, pid in self.pids.items():
                    with open(os.path.join(folder, str(pid)), errors="replace") as file:
                        stack_of[rank] = file.read()
            return {"wall_ms": times.wall_ms, "cpu_ms": times.cpu_ms, "right": self.right(stack_of)}

        return Contender(name, ["sh", "-c", words, "sh", "PID..."], measure, version, not_run)


def python_job(bench, workers, torch):
    """Returns the command of a job of Python workers, and where each rank waits."""
    script = os.path.join(bench.root, WORKERS, "waiting_worker.py")
    even, odd = lines_with(script, "    signal.pause()")
    places = [("odd", "waiting_worker.py", odd) if rank % 2 else ("even", "waiting_worker.py", even)
              for rank in range(workers)]
    return [script, "FILE", *(["torch"] if torch else [])], places


def cpp_job(bench, workers):
    line, = lines_with(os.path.join(bench.root, WORKERS, "libddp_worker.cpp"), "pause();")
    return [bench.binary("bench_worker"), "FILE", "hold", "1"], [("hold", "libddp_worker.cpp", line)] * workers


def contenders(waiting, python, py_spy):
    yield waiting.ddprun()
    if python:
        version = machine.first_line(py_spy, "--version")
        for what in "py-spy dump", "py-spy dump --native":
            tool = what.replace("py-spy", py_spy) + " --pid $pid"
            yield waiting.by_hand(f"{what}, in turn", tool, IN_TURN, version)
            yield waiting.by_hand(f"{what}, at once", tool, AT_ONCE, version)
        return
    version = machine.package_version("gdb")
    for name, loop in ("gdb, in turn", IN_TURN), ("gdb, at once", AT_ONCE):
        yield waiting.by_hand(name, "gdb -nx -batch -ex bt -p $pid", loop, version,
                              "" if shutil.which("gdb") else "no gdb here (Debian's gdb)")


def group(bench, kind, workers):
    name, is_python = f"{workers} {kind} workers", kind != "C++"
    python = bench.python or sys.executable
    beside = os.path.join(os.path.dirname(python), "py-spy")
    py_spy = beside if os.path.exists(beside) else shutil.which("py-spy")
    if is_python and not py_spy:
        return Group(name, [Row("ddprun stacks", not_run="no py-spy here (pip install py-spy)")])
    if kind == "PyTorch" and bench.no_torch:
        return Group(name, [Row("ddprun stacks", not_run=bench.no_torch)])
    if not is_python and not shutil.which("eu-stack"):
        return Group(name, [Row("ddprun stacks", not_run="no eu-stack here (Debian's elfutils)")])
    program, places = python_job(bench, workers, kind == "PyTorch") if is_python else cpp_job(bench, workers)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "stamps")
        command = [*bench.launcher("ddprun", workers).prefix, *[path if word == "FILE" else word for word in program]]
        with job(*command, environment={"PYTHON_EXEC": python}) as running:
            waiting = Waiting(bench, running, path, places)
            return bench.in_turn(name, list(contenders(waiting, is_python, py_spy)), runs=5)


def measure(bench):
    sizes = [("Python", 4), ("C++", 2)] if bench.quick else [("Python", 8), ("Python", 64), ("PyTorch", 8), ("C++", 8)]
    return [group(bench, kind, workers) for kind, workers in sizes]


def write(page, groups):
    for each in groups:
        page.rows(each, [Column("wall ms", "wall_ms", 0), Column("CPU ms", "cpu_ms", 0),
                         Column("right", "right", 0, spread=False)], base="ddprun stacks")
    names = list(dict.fromkeys(row.name for each in groups for row in each.rows if row.runs))

    def draw(axes):
        plots.grouped_bars(axes, [each for each in groups if each.rows[0].runs], "wall_ms", names)
        axes.set_yscale("log")
        axes.set_ylabel("ms until all stacks are there")

    if names:
        page.plot("stacks", "From a command's start until it has the stacks of all ranks, in ms", draw)
    page.commands(groups)
