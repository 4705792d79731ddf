# SPDX-License-Identifier: BSD-3-Clause
"""Rows 40 to 43, and the second half of 9: how agents meet."""
import os
import signal

from agent import IMPATIENT, hold, let_go, started
from jobs import free_port
from launcher import RECORD, c10d, ended, environments
from rows import not_run, row

ENDPOINTS = "localhost:99999", "localhost:", "localhost:port", "local host", ":29400", "[::1", "localhost:-1"
CONF = ("is_host=maybe", "no_value", "no_value=", "=no_key", "store_type=none", "read_timeout=0", "join_timeout=-1",
        "last_call_timeout=soon")
YES, NO = ("1", "true", "T", "YES", "y"), ("0", "false", "F", "No", "n")


@row("9b", "SIGTERM to one agent of an elastic job does not end it for the other",
     torchrun="it waits at its exit barrier 300 s for the one that left, then exits with 0")
def _(launch):
    job = (*c10d("1:2", free_port()), "--max-restarts=2", *hold(launch))
    first, second = launch.start(*job), launch.start(*job)
    first.until(lambda: started(launch, 2), "two workers")
    second.signal(signal.SIGTERM)
    ended(second, good=False)
    assert first.running(), first.said()
    let_go(launch)
    ended(first)


@row("40a", "an agent too many waits as a spare, and takes the place of one that died",
     torchrun="the job ends in errors: see row 26")
def _(launch):
    job = (*c10d(2, free_port(), *IMPATIENT), "--max-restarts=2", *hold(launch))
    first, second = launch.start(*job), launch.start(*job)
    first.until(lambda: started(launch, 2), "two workers")
    spare = launch.start(*job)
    second.signal(signal.SIGKILL)
    assert second.wait() == -signal.SIGKILL
    spare.until(lambda: started(launch, 2, times=2), "two workers in the second round")
    let_go(launch)
    ended(first), ended(spare)


not_run("40b", "who comes to a job that is closed is told so", "white-box: tests/launcher/coordinator_core_test.cpp asks "
        "the coordinator; from outside the port of a job that is over is free for the next one")


@row("41", "endpoints and --rdzv-conf that mean nothing are errors before a worker starts")
def _(launch):
    worker = RECORD, "--touch-file-dir", launch.path("none")
    for endpoint in ENDPOINTS:
        launch.run("--nnodes=1:2", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", *worker, good=False)
    for conf in CONF:
        launch.run("--nnodes=1:2", "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{free_port()}",
                   f"--rdzv-conf={conf}", *worker, good=False)
    assert not os.path.exists(launch.path("none"))


@row("42", "store_type=file: agents of one machine meet through a file")
def _(launch):
    ...


not_run("43", "static rendezvous without rank, address or port; plug-ins of other packages",
        "white-box: the options have defaults, so that nothing can be left out from outside")
