# SPDX-License-Identifier: BSD-3-Clause
"""Rows 40 to 43, and the second half of row 9: rendezvous of agents."""
import os
import signal

from agent import IMPATIENT, UNHURRIED, WAITS_FOR_THE_DEAD, hold, host_and_another, kill, let_go, started
from jobs import free_port
from launcher import RECORD, c10d, ended, environments
from rows import not_run, row

ENDPOINTS = "localhost:99999", "localhost:", "localhost:port", "local host", ":29400", "[::1", "localhost:-1"
CONF = ("is_host=maybe", "no_value", "no_value=", "=no_key", "store_type=none", "read_timeout=0", "join_timeout=-1",
        "last_call_timeout=soon")
YES = "1", "true", "T", "YES", "y"


@row("9b", "SIGTERM to one agent of an elastic job does not end it for the other", torchrun=WAITS_FOR_THE_DEAD)
def _(launch):
    port = free_port()
    host, other = host_and_another(launch, port, (*c10d("1:2", port, UNHURRIED), "--max-restarts=2", *hold(launch)))
    other.signal(signal.SIGTERM)
    ended(other, good=False)
    assert host.running(), host.said()
    let_go(launch)
    ended(host)


@row("40a", "an agent too many waits as a spare, and takes the place of one that died",
     torchrun="if rank 0 lives, it publishes no address for the new round: the spare exits with 1, as in row 26")
def _(launch):
    port = free_port()
    job = (*c10d(2, port, *IMPATIENT), "--max-restarts=2", *hold(launch))
    host, other = host_and_another(launch, port, job)
    spare = launch.start(*job)
    kill(other)
    spare.until(lambda: started(launch, 2, times=2), "two workers in the second round")
    let_go(launch)
    ended(host), ended(spare)


not_run("40b", "an agent that comes to a closed job gets that error", "white-box: tests/rendezvous/coordinator/coordinator_core_test.cpp "
        "asks the coordinator; from outside the port of a job that is over is free for the next one")


@row("41", "endpoints and --rdzv-conf that mean nothing are errors before a worker starts")
def _(launch):
    worker = RECORD, "--touch-file-dir", launch.path("none")
    for endpoint in ENDPOINTS:
        launch.run("--nnodes=1:2", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", *worker, good=False)
    for conf in CONF:
        launch.run("--nnodes=1:2", "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{free_port()}",
                   f"--rdzv-conf={conf}", *worker, good=False)
    assert not os.path.exists(launch.path("none"))
    for host in "127.0.0.1", "[::1]":
        conf = f"--rdzv-endpoint={host}:{free_port()}", "--rdzv-conf=is_host=true,last_call_timeout=1,read_timeout=30"
        launch.run("--nnodes=1:2", "--rdzv-backend=c10d", *conf, "--no-python", "true")
    for word in YES:
        conf = f"--rdzv-endpoint=localhost:{free_port()}", f"--rdzv-conf=is_host={word}"
        launch.run("--nnodes=1", "--rdzv-backend=c10d", *conf, "--no-python", "true")


@row("42", "store_type=file: agents of one machine meet through a file")
def _(launch):
    job = ("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-conf=store_type=file", f"--rdzv-endpoint={launch.path('meet')}",
           "--rdzv-id=row42", "--local-addr=127.0.0.1", RECORD, "--touch-file-dir", launch.path("seen"))
    agents = [launch.start(*job), launch.start(*job)]
    for agent in agents:
        ended(agent)
    environments(launch.path("seen"), 2)


not_run("43", "static rendezvous without rank, address or port, and plug-ins of other packages",
        "white-box: the options have defaults, so that nothing can be left out from outside")
