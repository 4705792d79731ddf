# SPDX-License-Identifier: BSD-3-Clause
"""Jobs that a test starts: their output, their end with a deadline, and whether any process of them is left.

The Python counterpart of tests/support/process.hpp: a job has a mark in its environment, which all its descendants
inherit, so that they are found wherever they are.
"""
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
import uuid

MARK = "DDPRUN_TEST_MARK"
PATIENCE = 60  # seconds; generous: a test reaches it only if something hangs


def until(fact, what, seconds=PATIENCE):
    """Waits until fact() returns something true, and returns that."""
    deadline = time.monotonic() + seconds
    while not (value := fact()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(0.01)
    return value


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listening_sockets(port):
    """Returns links in the form of /proc/<pid>/fd."""
    found = set()
    for table in "/proc/net/tcp", "/proc/net/tcp6":
        with open(table) as file:
            for fields in map(str.split, file):
                if fields[1].endswith(f":{port:04X}") and fields[3] == "0A":
                    found.add(f"socket:[{fields[9]}]")
    return found


def lines_with(text, words):
    return [line for line in text.splitlines() if words in line]


def marked(mark):
    """Returns the processes that inherited the mark: {pid: command line}. Zombies have no environment any more."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as environment:
                if f"{MARK}={mark}".encode() in environment.read().split(b"\0"):
                    with open(f"/proc/{pid}/cmdline", "rb") as command:
                        found[int(pid)] = command.read().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            pass  # gone, or another user's
    return found


class Job:
    """A command and everything that it starts. As a context manager it kills what is left.

    environment: added to this process's environment, without the variables whose names begin with one of `without`.
    popen: what starts the command; forked_torchrun.py has another one.
    """

    def __init__(self, *command, environment=None, without=(), cwd=None, patience=PATIENCE, popen=subprocess.Popen):
        self.mark = uuid.uuid4().hex
        self.patience = patience
        own = {name: value for name, value in os.environ.items() if not name.startswith(tuple(without))}
        # Files instead of pipes: leftover processes may keep them open, and they need no reader.
        self.files = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        # In a new process group, as a shell starts it: the kernel does not suspend a job that no process could wake.
        self.process = popen(list(map(str, command)), cwd=cwd or os.getcwd(), stdin=subprocess.DEVNULL,
                             stdout=self.files[0], stderr=self.files[1], preexec_fn=os.setpgrp,
                             env={**own, **(environment or {}), MARK: self.mark})
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()
        for file in self.files:
            file.close()

    def out_bytes(self):
        return self._content(self.files[0])

    def err_bytes(self):
        return self._content(self.files[1])

    def out(self):
        return self.out_bytes().decode(errors="replace")

    def err(self):
        return self.err_bytes().decode(errors="replace")

    def said(self):
        return f"exit code {self.process.poll()}\nstdout:\n{self.out()}\nstderr:\n{self.err()}"

    def running(self):
        return self.process.poll() is None

    def wait(self):
        """Waits for the end and returns the exit code. Raises an error with the output if it does not end."""
        try:
            return self.process.wait(self.patience)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {self.patience} s; {self.said()}") from None

    def until(self, fact, what):
        """Waits until fact() is true, but no longer than the job runs."""
        def true_or_over():
            value = fact()
            return value or not self.running()

        try:
            until(true_or_over, what, self.patience)
        except AssertionError as late:
            raise AssertionError(f"{late}; {self.said()}") from None
        value = fact()
        assert value, f"{what}: not before the end; {self.said()}"
        return value

    def wait_for(self, pattern):
        """Waits until a line on stdout matches; returns the match."""
        return self.until(lambda: re.search(pattern, self.out(), re.MULTILINE), f"'{pattern}' on stdout")

    def signal(self, number):
        self.process.send_signal(number)

    def listens_at(self, port):
        """Returns whether a process of this job listens there. Makes no connection, which the listener would see."""
        sockets = listening_sockets(port)
        for pid in marked(self.mark):
            try:
                if any(os.readlink(f"/proc/{pid}/fd/{fd}") in sockets for fd in os.listdir(f"/proc/{pid}/fd")):
                    return True
            except OSError:
                pass  # the descriptor is closed, or the process has ended
        return False

    def left_over(self):
        """Returns the job's processes other than the one that was started: {pid: command line}."""
        return {pid: command for pid, command in marked(self.mark).items() if pid != self.pid}

    def end(self):
        """Kills the job's processes until none is left."""
        def none_left():
            if self.running():
                self.process.kill()  # a process that was forked has no mark
            for pid in marked(self.mark):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.process.poll()
            return not marked(self.mark)

        until(none_left, f"end of {self.process.args[0]}")

    @staticmethod
    def _content(file):
        return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)


def run(*command, exit_code=0, **options):
    """Runs a job that must end with that exit code and leave nothing. Returns stdout and stderr."""
    with Job(*command, **options) as job:
        code = job.wait()
        left = job.left_over()
        assert code == exit_code, f"exit code {exit_code} was expected; {job.said()}"
        assert not left, f"left over: {left}; {job.said()}"
        return job.out(), job.err()


class FolderOfJobs:
    """The jobs of one test, and a folder of its own for them. A subclass says in start() how it starts one."""

    def __init__(self, prefix):
        self._folder = tempfile.TemporaryDirectory(prefix=prefix)
        self.folder = self._folder.name
        self.jobs = []

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, text, mode=0o644):
        """Writes a file, makes the folders above it, and returns its path."""
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    def run(self, *arguments, code=0, **options):
        """Runs a job to its end, checks its exit code, and returns the job."""
        job = self.start(*arguments, **options)
        assert job.wait() == code, f"exit code {code} was expected; {job.said()}"
        return job

    def close(self):
        for job in self.jobs:
            job.__exit__()
        self._folder.cleanup()
