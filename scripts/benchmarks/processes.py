# SPDX-License-Identifier: BSD-3-Clause
"""Programs that are measured: each has a deadline, and none may leave a process behind."""
import contextlib
import dataclasses
import json
import os
import select
import signal
import sys
import tempfile
import time
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/interop"))
from jobs import MARK, Job, free_port, marked, until  # noqa: E402, F401  (how tests start and end jobs)

from .rounds import NotDone, WrongResult  # noqa: E402

DEADLINE = 120  # seconds

# One thread a worker: what torchrun gives its workers, and what 8 of them on two CPUs want. MPI is asked as root in
# containers.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@dataclasses.dataclass
class Times:
    started: float  # seconds of CLOCK_REALTIME, which workers' stamps are of too
    wall_ms: float
    cpu_ms: float  # includes all processes that the program waited for


def timed(command, environment=None, deadline=None, out=os.devnull, grace=0):
    """Starts a command, which must leave nothing, and takes its time; NotDone if it does not end or fails. A peer may:
    MPICH's mpiexec breaks its pipe now and then if its processes end at once. Its stdout goes to the file `out`. What it has
    started may take `grace` seconds longer to end."""
    deadline = deadline or DEADLINE
    mark = uuid.uuid4().hex
    everything = {**os.environ, **ENVIRONMENT, **(environment or {}), MARK: mark}
    said = tempfile.TemporaryFile()
    actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0),
               (os.POSIX_SPAWN_OPEN, 1, out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
               (os.POSIX_SPAWN_DUP2, said.fileno(), 2)]
    started = time.clock_gettime(time.CLOCK_REALTIME)
    start = time.perf_counter()
    pid = os.posix_spawnp(command[0], command, everything, file_actions=actions)
    process = os.pidfd_open(pid)
    watch = select.poll()
    watch.register(process, select.POLLIN)
    ended = watch.poll(1000 * deadline)
    wall = time.perf_counter() - start
    os.close(process)
    if not ended:
        _kill_all(mark)
    _, status, usage = os.wait4(pid, 0)
    left = _left(mark, time.monotonic() + (grace if ended else 0))
    _kill_all(mark)
    words = os.pread(said.fileno(), 1 << 20, 0).decode(errors="replace")
    said.close()
    if not ended:
        raise NotDone(f"did not end within {deadline} s{': ' if words else ''}{words}")
    if status != 0:
        raise NotDone(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}: {words}")
    if left:
        raise WrongResult(f"{' '.join(command)} left processes: {left}")
    return Times(started, 1e3 * wall, 1e3 * (usage.ru_utime + usage.ru_stime))


def _left(mark, deadline):
    while (found := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def _kill_all(mark):
    while found := marked(mark):
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def job(*command, environment=None, deadline=DEADLINE):
    """A job to look at while it runs; as a context manager it leaves nothing."""
    return Job(*command, environment={**ENVIRONMENT, **(environment or {})}, patience=deadline)


def ended_well(running):
    """Waits for the end of such a job, which must leave nothing; NotDone if it fails."""
    code = running.wait()
    left = running.left_over()
    if left:
        raise WrongResult(f"left over: {left}; {running.said()}")
    if code != 0:
        raise NotDone(f"exit code {code}; {running.said()}")


def json_lines(command, environment=None, deadline=DEADLINE):
    """The lines of JSON that a command says, which must succeed and leave nothing."""
    with job(*command, environment=environment, deadline=deadline) as running:
        ended_well(running)
        return [json.loads(line) for line in running.out().splitlines() if line.startswith("{")]


def stat_of(pid):
    """The fields of /proc/PID/stat from the process's state on."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()


def cpu_ms(pids):
    """The CPU time of these processes and of the children that they have waited for."""
    ticks = sum(sum(map(int, stat_of(pid)[11:15])) for pid in pids)
    return 1e3 * ticks / os.sysconf("SC_CLK_TCK")


def environment_of(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        pairs = (entry.partition(b"=") for entry in file.read().split(b"\0"))
        return {name.decode(): value.decode(errors="replace") for name, _, value in pairs}


def _kib(path, field):
    with open(path) as file:
        return int(next(line.split()[1] for line in file if line.startswith(field)))


def peak_mib(pid):
    """The largest resident size it has had."""
    return _kib(f"/proc/{pid}/status", "VmHWM:") / 1024


def share_mib(pid):
    """Its memory, with its share of what it has in common with others (PSS)."""
    return _kib(f"/proc/{pid}/smaps_rollup", "Pss:") / 1024
