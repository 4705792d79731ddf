# SPDX-License-Identifier: BSD-3-Clause
"""Start and end of workers that do nothing: what is left is the launcher's own time."""
import fcntl
import re
import shutil
import tempfile

from .. import plots
from ..page import Column
from ..processes import DEADLINE, ended_well, environment_of, job, marked, peak_mib, share_mib, timed
from ..rounds import Contender, WrongResult

TITLE = "Launch"
ABOUT = """
Start and end of N workers of `true` on one machine, from the launcher's exec to its exit. The floor is a shell that
starts them in the background and waits.

* wall: as another process sees it. CPU: of the launcher and its N workers together.
* peak: the largest resident size of any one of the launcher's processes. memory: of all of them together, as shares of
  what they have in common (PSS). Both in a run of its own, while the workers are all there and wait.
* × ddprun, × shell: wall, divided by the figure of ddprun or the shell in the same turn.
"""
TRUE = shutil.which("true")  # the path: a shell would not start a process for its own
RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
LAUNCHERS = ["ddprun", "torchrun", "Open MPI", "MPICH", "shell"]


def waiting(mark, lock):
    """The workers that wait for the lock: {pid: rank}; and all other processes of the job."""
    everything = marked(mark)
    workers = [pid for pid, command in everything.items() if re.match(rf"\S*flock --shared {re.escape(lock)} ", command)]
    return workers, [pid for pid in everything if pid not in workers]


def memory(launcher, workers, ranked):
    """Peak and share of the launcher's processes in MiB while all its workers are there; and whether they are."""
    with tempfile.NamedTemporaryFile() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with job(*launcher, "flock", "--shared", lock.name, "true") as running:
            running.until(lambda: len(waiting(running.mark, lock.name)[0]) == workers, f"{workers} workers")
            those, others = waiting(running.mark, lock.name)
            ranks = sorted(rank_of(pid) for pid in those) if ranked else list(range(workers))
            figures = {"peak_mib": max(map(peak_mib, others)), "share_mib": sum(map(share_mib, others))}
            fcntl.flock(lock, fcntl.LOCK_UN)
            ended_well(running)
    if ranks != list(range(workers)):
        raise WrongResult(f"{workers} workers were asked for; their ranks are {ranks}")
    return figures


def rank_of(pid):
    environment = environment_of(pid)
    return next((int(environment[name]) for name in RANK_VARIABLES if name in environment), None)


def contender(bench, name, workers):
    launcher = bench.launcher(name, workers)
    start = launcher.prefix + (["--no-python"] if name == "torchrun" else [])

    ours = name == "ddprun"

    def measure():
        times = timed([*start, TRUE], deadline=DEADLINE if ours else 20)  # Open MPI hangs with many
        return {"wall_ms": times.wall_ms, "cpu_ms": times.cpu_ms, **memory(start, workers, ranked=name != "shell")}

    return Contender(name, [*start, TRUE], measure, launcher.version, launcher.not_run, ours)


def measure(bench):
    return [bench.in_turn(f"{n} worker{'s' if n > 1 else ''}", [contender(bench, name, n) for name in LAUNCHERS],
                          runs=10, facts={"workers": n})
            for n in ([8] if bench.quick else [1, 8, 64])]


def write(page, groups):
    columns = [Column("wall ms", "wall_ms"), Column("CPU ms", "cpu_ms"), Column("peak MiB", "peak_mib", spread=False),
               Column("memory MiB", "share_mib", spread=False)]
    for group in groups:
        page.rows(group, columns, base=("ddprun", "shell"))
    names = [row.name for row in groups[0].rows if any(g.row(row.name).runs for g in groups)]

    def draw(axes):
        plots.grouped_bars(axes, groups, "wall_ms", names)
        axes.set_yscale("log")
        axes.set_ylabel("ms from start to exit")

    page.plot("launch", "Start and end of workers that do nothing, in ms", draw)
    page.commands(groups)
