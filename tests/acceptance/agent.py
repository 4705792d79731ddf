# SPDX-License-Identifier: BSD-3-Clause
"""Rows 19 to 30: workers' environment, roles, restarts, nodes that die."""
import glob
import json
import os
import re
import signal
import time

from jobs import free_port
from launcher import RECORD, WORKERS, c10d, ended, environments, incarnations
from rows import not_run, row

# A silent node is noticed after 3 s. read_timeout is how long torchrun's agents wait for each other's keys.
IMPATIENT = "keep_alive_interval=1", "keep_alive_max_attempt=3", "read_timeout=10"


WAITS_FOR_THE_DEAD = "the one left waits 300 s at its exit barrier for the other, then exits with 0"
# Long enough that neither of two launchers written in Python arrives after last call, in a running job.
UNHURRIED = "last_call_timeout=6"


def hold(launch):
    """Returns the command of a worker that waits for a file named `go`."""
    return (RECORD, "--touch-file-dir", launch.path("seen"), "--hold", launch.path("go"))


def host_and_another(launch, port, job):
    """Returns two agents with one worker each; the first has the store, because it was quicker."""
    agents = [launch.start(*job), launch.start(*job)]
    agents[0].until(lambda: started(launch, 2), "two workers")
    return sorted(agents, key=lambda agent: not agent.listens_at(port))


def kill(agent):
    agent.signal(signal.SIGKILL)
    assert agent.wait() == -signal.SIGKILL, agent.said()


def let_go(launch):
    open(launch.path("go"), "w").close()


def started(launch, ranks, times=1):
    seen = incarnations(launch.path("seen"))
    return sorted(seen) == list(range(ranks)) and all(len(of_rank) >= times for of_rank in seen.values())


@row("19", "TORCH_NCCL_ASYNC_ERROR_HANDLING is 1, or what the caller set")
def _(launch):
    name = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
    for given, expected in ({}, "1"), ({name: "0"}, "0"):
        launch.run(RECORD, "--touch-file-dir", launch.path(expected), environment=given)
        seen = environments(launch.path(expected), 1)[0].get(name)
        assert seen == expected, f"{name} is {seen}, not {expected}"


@row("20", "TORCHELASTIC_TIMER_FILE is passed on if it is set, and a health check port does no harm")
def _(launch):
    timer = {"TORCHELASTIC_TIMER_FILE": launch.path("timer")}
    for name, given in ("without", {}), ("with", timer), ("port", {"TORCHELASTIC_HEALTH_CHECK_PORT": str(free_port())}):
        launch.run(RECORD, "--touch-file-dir", launch.path(name), environment=given)
        seen = environments(launch.path(name), 1)[0].get("TORCHELASTIC_TIMER_FILE")
        assert seen == given.get("TORCHELASTIC_TIMER_FILE"), f"{name}: TORCHELASTIC_TIMER_FILE is {seen}"


@row("21a", "two agents with four workers each add up the ranks 0 to 7", torch=True)
def _(launch):
    add_up(launch, [4, 4])


@row("21b", "agents with one, two and three workers add up the ranks 0 to 5, with the prefix asked for", torch=True)
def _(launch):
    add_up(launch, [1, 2, 3])


def add_up(launch, sizes):
    world, port = sum(sizes), free_port()
    prefix = {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[${role_name}-${local_rank}:${rank}]:"}
    agents = [launch.start(*c10d(len(sizes), port), *launch.warm, f"--nproc-per-node={size}", "--role=adder", "--tee=3",
                           f"--log-dir={launch.path('logs')}", os.path.join(WORKERS, "sum.py"), environment=prefix,
                           patience=120) for size in sizes]
    seats = []
    line = rf"^\[adder-(\d+):(\d+)\]:the sum of {world} ranks is {world * (world - 1) // 2}$"
    for agent, size in zip(agents, sizes):
        ended(agent)
        said = re.findall(line, agent.out(), re.MULTILINE)
        assert sorted(int(local) for local, _ in said) == list(range(size)), agent.said()
        seats += [int(rank) for _, rank in said]
    assert sorted(seats) == list(range(world)), seats


@row("22", "roles: seven agents of three roles, ranks and role ranks without a gap")
def _(launch):
    roles = [("master", 8), ("trainer", 1), ("trainer", 2), ("trainer", 3), ("trainer", 4), ("ps", 5), ("ps", 2)]
    port = free_port()
    agents = [launch.start(*c10d(len(roles), port), f"--role={role}", f"--nproc-per-node={size}",
                           RECORD, "--touch-file-dir", launch.path("seen"), patience=120) for role, size in roles]
    for agent in agents:
        ended(agent)
    workers = environments(launch.path("seen"), 25)
    for role, size in ("master", 8), ("trainer", 10), ("ps", 7):
        mine = [worker for worker in workers if worker["ROLE_NAME"] == role]
        assert {worker["ROLE_WORLD_SIZE"] for worker in mine} == {str(size)}, mine
        assert [int(worker["ROLE_RANK"]) for worker in mine] == list(range(size)), mine
    for node in range(len(roles)):
        mine = [worker for worker in workers if worker["GROUP_RANK"] == str(node)]
        assert [int(worker["LOCAL_RANK"]) for worker in mine] == list(range(len(mine))), mine
        for name in "RANK", "ROLE_RANK":
            ranks = [int(worker[name]) for worker in mine]
            assert ranks == list(range(ranks[0], ranks[0] + len(mine))), ranks


@row("23", "torch RPC across two roles on two agents", torch=True)
def _(launch):
    port = free_port()
    agents = [launch.start(*c10d(2, port), f"--role={role}", os.path.join(WORKERS, "rpc.py"), patience=120)
              for role in ("master", "trainer")]
    for agent in agents:
        ended(agent)
    assert "master0 was answered by 1 trainers" in agents[0].out(), agents[0].said()


@row("24", "the first failure's error file becomes the launcher's own", torch=True)
def _(launch):
    own = launch.path("own.json")
    job = launch.run("--nproc-per-node=2", f"--log-dir={launch.path('logs')}", os.path.join(WORKERS, "raises.py"),
                     "record", good=False, environment={"TORCHELASTIC_ERROR_FILE": own})
    written = [json.load(open(path))["message"] for path in glob.glob(launch.path("logs/*/attempt_0/*/error.json"))]
    assert os.path.exists(own), f"no {own}; {job.said()}"
    copied = json.load(open(own))["message"]
    same = [one for one in written if one["message"] == copied["message"]
            and one["extraInfo"]["timestamp"] == copied["extraInfo"]["timestamp"]]
    assert same, f"{copied} is none of {written}"
    assert re.fullmatch("ValueError: rank [01] of role default has had enough", copied["message"]), copied
    assert copied["errorCode"] == 1, copied
    assert copied["message"] in job.err(), job.said()


@row("25", "even ranks fail: with --max-restarts=2 there are three attempts and an error")
def _(launch):
    launch.run("--nproc-per-node=2", "--max-restarts=2", RECORD, "--touch-file-dir", launch.path("seen"), "--fail-even",
               good=False)
    counts = [(e["environment"]["TORCHELASTIC_RESTART_COUNT"], e["environment"]["TORCHELASTIC_MAX_RESTARTS"])
              for e in incarnations(launch.path("seen"))[0]]
    assert counts == [("0", "2"), ("1", "2"), ("2", "2")], counts


@row("26", "an agent of two is killed, another takes its place, and both end well",
     torchrun="if rank 0 lives, it publishes no address for the new round: both exit with 1 after read_timeout")
def _(launch):
    port = free_port()
    job = (*c10d(2, port, *IMPATIENT), "--max-restarts=2", *hold(launch))
    host, other = host_and_another(launch, port, job)
    kill(other)
    third = launch.start(*job)
    third.until(lambda: started(launch, 2, times=2), "two workers in the second round")
    let_go(launch)
    ended(host), ended(third)


@row("27", "an agent of an elastic job is killed, the other ends well", torchrun=WAITS_FOR_THE_DEAD)
def _(launch):
    port = free_port()
    job = (*c10d("1:2", port, UNHURRIED, *IMPATIENT), "--max-restarts=2", *hold(launch))
    host, other = host_and_another(launch, port, job)
    kill(other)
    let_go(launch)
    ended(host)


@row("28", "workers fail on both nodes: both agents exit with an error, neither waits for the other")
def _(launch):
    port = free_port()
    ends = []
    agents = [launch.start("--nnodes=2", f"--node-rank={rank}", "--master-addr=127.0.0.1", f"--master-port={port}",
                           "--max-restarts=0", *hold(launch), "--exit=1") for rank in range(2)]
    agents[0].until(lambda: started(launch, 2), "two workers")
    let_go(launch)
    for agent in agents:
        ended(agent, good=False)
        ends.append(time.monotonic())
    assert ends[1] - ends[0] < 5, ends


@row("29", "nodes that finish two seconds apart both succeed")
def _(launch):
    job = (*c10d(2, free_port()), RECORD, "--touch-file-dir", launch.path("seen"), "--sleep=2")
    for agent in [launch.start(*job), launch.start(*job)]:
        ended(agent)
    environments(launch.path("seen"), 2)


@row("30a", "the shutdown timeout: the option before the variable, 0 is allowed, less is an error")
def _(launch):
    cases = [({"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "1"}, ()), ({"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "50"},
             ("--shutdown-timeout=1",)), ({"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "50"}, ("--shutdown-timeout=0",))]
    for i, (environment, options) in enumerate(cases):
        file = launch.path(f"ready{i}")
        job = launch.start(*options, os.path.join(WORKERS, "stubborn.py"), file, environment=environment, patience=20)
        job.until(lambda: os.path.exists(file) and len(open(file).readlines()) == 2, "worker and child")
        start = time.monotonic()
        job.signal(signal.SIGTERM)
        assert job.wait() != 0
        took = time.monotonic() - start
        assert (0 if "0" in str(options) else 1) <= took < 15, f"{environment} {options}: {took} s"
    launch.run("--shutdown-timeout=-1", RECORD, "--touch-file-dir", launch.path("none"), good=False)
    assert not os.path.exists(launch.path("none"))


not_run("30b", "the exit barrier's timeout: 300 s, or what is asked for",
        "torch 2.15 has no such option; ddprun has no exit barrier: its coordinator tells every agent the end")
