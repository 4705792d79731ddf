# SPDX-License-Identifier: BSD-3-Clause
"""The real torchrun without the seconds in which it imports PyTorch.

A test imports this module, which imports what torchrun imports, and then has each torchrun forked from itself:
`Job(*TORCHRUN, ..., popen=ForkedPython)`. The new process gets the environment, the folder and the streams of a fresh one,
and runs the module as `python -m` does. Workers are fresh processes, as always. The test must have no other threads.
"""
import os
import runpy
import signal
import subprocess
import sys
import time
import traceback
import warnings

import torch.distributed.launcher.api  # noqa: F401
import torch.numa.binding  # noqa: F401
import torch.utils.backend_registration  # noqa: F401

TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
LAUNCH = [sys.executable, "-W", "ignore", "-m", "torch.distributed.launch"]


class ForkedPython:
    """As subprocess.Popen, for commands that begin with TORCHRUN or LAUNCH. `cwd` and `env` must be given."""

    def __init__(self, args, *, cwd, env, stdin, stdout, stderr, preexec_fn):
        assert args[0] == sys.executable and stdin == subprocess.DEVNULL, args
        self.args, self.returncode = args, None
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os._exit(_exit_code_of(lambda: _become(args[1:], cwd, env, stdout, stderr, preexec_fn)))

    def poll(self):
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout):
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(0.01)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def _become(words, cwd, env, stdout, stderr, preexec_fn):
    preexec_fn()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(stdout.fileno(), 1)
    os.dup2(stderr.fileno(), 2)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    if words[0] == "-W":
        warnings.simplefilter(words[1])
        words = words[2:]
    assert words[0] == "-m", words
    sys.path[0] = os.getcwd()
    sys.argv = ["-m", *words[2:]]
    runpy.run_module(words[1], run_name="__main__", alter_sys=True)


def _exit_code_of(program):
    """Runs the program and returns the exit code with which an interpreter would end after it."""
    code = 0
    try:
        program()
    except SystemExit as end:
        code = end.code
        if code is not None and not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return (code or 0) & 0xFF
