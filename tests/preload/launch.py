# SPDX-License-Identifier: BSD-3-Clause
"""Starts jobs for one test, in a folder of its own, with workers that are started with exec or
forked from a warm parent, and compares the two kinds."""
import difflib
import glob
import json
import os
import re
import subprocess

from jobs import FolderOfJobs, Job, marked, until

WORKERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "workers")

# Variables of the caller's environment that must not affect a test.
CLEARED = ("PET_", "TORCHELASTIC_", "TORCH_", "SLURM_", "OMP_NUM_THREADS", "MASTER_", "LOGLEVEL", "PYTHON",
           "CUDA_VISIBLE_DEVICES", "DDPRUN_")
PRELOADED = "json,random,threading"


class Python:
    """An interpreter that runs workers."""

    def __init__(self, path):
        self.path = path
        said = subprocess.run([path, "-c", "import sys; sys.stdout.write(sys.version.split()[0])"],
                              stdout=subprocess.PIPE, universal_newlines=True, check=True, timeout=60).stdout
        self.version_text = said
        self.version = tuple(map(int, said.rstrip("+").split(".")[:2]))


class Launch(FolderOfJobs):
    """The argument of a test."""

    def __init__(self, ddprun, python):
        super().__init__("preload_")
        self.ddprun, self.python = ddprun, Python(python)

    def start(self, *arguments, preload=PRELOADED, environment=None, before=(), **options):
        """Starts a job. With preload=None its workers are started with exec. `before` is a
        command that executes the words after it."""
        words = [*before, self.ddprun, "--log-level=info", *([f"--preload={preload}"] if preload else []), *arguments]
        job = Job(*words, without=CLEARED, environment={"PYTHON_EXEC": self.python.path, **(environment or {})},
                  **{"cwd": self.folder, **options})
        job.preload = preload
        self.jobs.append(job)
        return job

    def preloaded(self, *arguments, **options):
        """Runs a job to its end, and checks that its workers were forked from a warm parent."""
        job = self.run(*arguments, **options)
        check_preloaded(job)
        return job

    def both(self, *arguments, workers=1, code=0, normal=None, **options):
        """Runs a job without and with --preload. The exit code must be `code` in both, and the
        workers' output the same, after normal() if that is given. Returns the output with
        --preload: {(local rank, "stdout"): bytes}."""
        said = []
        for way, preload in ("executed", None), ("forked", PRELOADED):
            logs = self.path(f"{way}_{len(self.jobs)}")
            job = self.run(f"--nproc-per-node={workers}", f"--log-dir={logs}", "--redirects=3", *arguments,
                           preload=preload, code=code, **options)
            if preload:
                check_preloaded(job)
            said.append(streams(logs))
        executed, forked = said
        assert len(executed) == 2 * workers and executed.keys() == forked.keys(), (executed.keys(), forked.keys())
        for stream, content in executed.items():
            one, other = (normal(content), normal(forked[stream])) if normal else (content, forked[stream])
            assert one == other, f"{stream}, of a worker started by exec (-), and forked (+):\n{difference(one, other)}"
        return forked

    def check_nothing_left(self):
        for job in self.jobs:
            if not job.running():
                left = job.left_over()
                assert not left, f"left over: {left}; {job.said()}"


def check_preloaded(job):
    said = job.err()
    imported = r"\S+" if job.preload == "auto" else re.escape(job.preload)
    assert len(re.findall(f"info: imported {imported} in ", said)) == 1, job.said()
    assert "started without it" not in said, job.said()


def streams(logs):
    """Returns the output of a job's first round: {(local rank, "stdout"): bytes}."""
    found = {}
    for path in glob.glob(os.path.join(logs, "*", "attempt_0", "*", "std*.log")):
        with open(path, "rb") as file:
            found[int(os.path.basename(os.path.dirname(path))), os.path.basename(path)[:-4]] = file.read()
    return found


def difference(one, other):
    """Returns the lines in which two values differ, which are bytes or can be written as JSON."""
    def lines(content):
        text = content.decode(errors="backslashreplace") if isinstance(content, bytes) else \
            json.dumps(content, indent=1, sort_keys=True, default=repr)
        return text.splitlines()

    return "\n".join(difflib.unified_diff(lines(one), lines(other), n=2, lineterm=""))


# ---- The processes of a running job ----

def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


def name_of(pid):
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return None


def agent_of(job):
    """Returns the agent's pid: it is the child of the keeper, which is the child of the guardian."""
    agent = job.pid
    for _ in range(2):
        (agent,) = until(lambda: children_of(agent), "a ddprun's child")
    return agent


def warm_parent_of(job):
    """Returns the pid of the warm parent, or None."""
    for pid in marked(job.mark):
        if name_of(pid) == "ddprun warm":
            return pid
    return None
