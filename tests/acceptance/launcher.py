# SPDX-License-Identifier: BSD-3-Clause
"""The launcher under test: starts a row's jobs, in a folder of the row's own, and leaves nothing behind."""
import json
import os
import subprocess
import tempfile

from jobs import Job

WORKERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "workers")
RECORD = os.path.join(WORKERS, "record.py")

# Variables of the caller that must not influence a test, by the beginning of their names.
CLEARED = ("PET_", "TORCHELASTIC_", "TORCH_ELASTIC_", "TORCH_NCCL_", "SLURM_", "OMP_NUM_THREADS", "MASTER_", "LOGLEVEL",
           "CUDA_VISIBLE_DEVICES", "JOB_COMPLETION_INDEX")


class Launcher:
    """The launcher's path and kind, and the Python that runs its workers."""

    def __init__(self, path, python):
        self.path = os.path.abspath(path)
        says = subprocess.run([self.path, "--version"], capture_output=True, text=True, timeout=60,
                              stdin=subprocess.DEVNULL).stdout
        self.is_ddprun = says.startswith("ddprun ")
        # ddprun does so too, if it is called by this name.
        self.always_exits_with_1 = not self.is_ddprun or os.path.basename(path) == "torchrun"
        # The real torchrun is a script; it runs workers with the Python that runs it.
        self.python = python if self.is_ddprun else shebang(self.path) or python
        self.has_torch = subprocess.run([self.python, "-c", "import importlib.util as i, sys;"
                                         "sys.exit(not i.find_spec('torch'))"]).returncode == 0


def shebang(path):
    with open(path, "rb") as file:
        line = file.readline().decode(errors="replace").strip()
    return line[2:] if line.startswith("#!") and os.path.exists(line[2:]) else None


class Launch:
    """The argument of a row's test: a launcher, a temporary folder and the jobs started so far."""

    def __init__(self, launcher):
        self.launcher = launcher
        self.is_ddprun, self.python = launcher.is_ddprun, launcher.python
        self._folder = tempfile.TemporaryDirectory(prefix="acceptance_")
        self.folder = self._folder.name
        self.jobs = []

    def path(self, name):
        return os.path.join(self.folder, name)

    def script(self, name, text):
        """Writes an executable file and returns its path."""
        with open(self.path(name), "w") as file:
            file.write(text)
        os.chmod(self.path(name), 0o755)
        return self.path(name)

    @property
    def warm(self):
        """Options with which ddprun imports PyTorch once for all workers of an agent, for rows with many of them."""
        return ("--preload=torch",) if self.is_ddprun else ()

    def start(self, *arguments, environment=None, **options):
        """Starts one agent."""
        python = {"PYTHON_EXEC": self.python} if self.is_ddprun else {}
        return self._start(self.launcher.path, *arguments, environment={**python, **(environment or {})}, **options)

    def _start(self, *command, patience=60, **options):
        self.jobs.append(Job(*command, without=CLEARED, patience=patience, **options))
        return self.jobs[-1]

    def run(self, *arguments, good=True, **options):
        """Starts an agent and waits for its end. The exit code must be 0, or, if not good, anything else."""
        return ended(self.start(*arguments, **options), good)

    def alone(self, *command, **options):
        """Runs a command without the launcher, to its end."""
        return ended(self._start(*command, **options))

    def left_over(self):
        """Returns the processes that ended jobs have left behind."""
        left = {}
        for job in self.jobs:
            if not job.running():
                left.update(job.left_over())
        return left

    def close(self):
        for job in self.jobs:
            job.__exit__()
        self._folder.cleanup()


def ended(job, good=True):
    code = job.wait()
    assert (code == 0) == good, f"{'exit code 0' if good else 'an error'} was expected; {job.said()}"
    return job


def c10d(nnodes, port, *conf):
    """Returns options of an elastic job on this machine. --local-addr, because not every machine resolves its own name."""
    shown = ",".join(("last_call_timeout=1", *conf))
    return (f"--nnodes={nnodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=acceptance",
            "--local-addr=127.0.0.1", f"--rdzv-conf={shown}")


def incarnations(folder):
    """Returns, for each rank, what its processes recorded, in order."""
    seen = {}
    for rank in os.listdir(folder) if os.path.isdir(folder) else []:
        with open(os.path.join(folder, rank)) as file:
            seen[int(rank)] = [json.loads(line) for line in file if line.endswith("\n")]
    return seen


def environments(folder, world):
    """Returns the environments of the ranks 0 to world - 1, each of which must have run once."""
    seen = incarnations(folder)
    assert sorted(seen) == list(range(world)), f"ranks {sorted(seen)}, not 0..{world - 1}"
    assert all(len(times) == 1 for times in seen.values()), f"not once each: {seen}"
    return [seen[rank][0]["environment"] for rank in range(world)]

