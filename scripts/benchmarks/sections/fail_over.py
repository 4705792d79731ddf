# SPDX-License-Identifier: BSD-3-Clause
"""What it takes until a job goes on that has lost what coordinates it: the process, or the node."""
import contextlib
import os
import signal
import subprocess
import tempfile
import time
import uuid

from .. import stamps
from ..page import Column
from ..processes import DEADLINE, ended_well, free_port, job, marked
from ..rounds import Contender, NotDone, WrongResult

TITLE = "Fail-over"
ABOUT = """
A job of three nodes on this machine, an agent and one worker of libddp each. The workers reduce in a loop. What
coordinates the job is killed: first only the process, then everything of its node.

The coordinator's process (`ddp-coordinator`) is killed with SIGKILL:

* heard again: from the kill until each of the three agents has heard from the next one. No worker is touched: it is checked
  that the same processes run on.
* failure: the coordinator is killed once more, and a worker with it; from the kill until each worker of the next round has
  the sum of its first all_reduce. only a worker: the same without a kill of the coordinator.
* etcd: the journal is in an etcd of three members on this machine (`--rdzv-backend etcd`), otherwise in a file.

Then all processes of the endpoint's node are killed at once, agent and worker too, in an elastic job (`--nnodes 2:3`); or its
launcher gets SIGTERM, as on a machine that is about to be taken away:

* back: until both workers of the next round have the sum of their first all_reduce. The others know only by the time that
  has passed that the workers of a node that was killed are dead ([high_availability.md](high_availability.md#with-etcd)).
* ended: the job did not go on. Until the launchers of both other nodes have ended.
"""
NODES = 3
BACK = "the link to the coordinator is back"
TORCHRUN_PATIENCE = 180


class Nodes:
    """A job of three nodes that reduce."""

    def __init__(self, stack, commands, path):
        self.path = path
        self.jobs = [stack.enter_context(job(*command)) for command in commands]
        self.jobs[0].until(lambda: self.all_reduced(NODES), "the first all_reduce")
        self.workers = {stamp.rank: stamp.pid for stamp in stamps.read(path)}
        # The node with rank 0 coordinates.
        self.endpoint = next(each for each in self.jobs if self.workers[0] in marked(each.mark))
        self.others = [each for each in self.jobs if each is not self.endpoint]

    def all_reduced(self, ranks, since=0.0):
        """Returns when each of the ranks had done its first all_reduce after that time, in one round; None before."""
        new = [stamp for stamp in stamps.read(self.path) if stamp.what == "reduced" and stamp.at > since]
        for restart in {stamp.restart for stamp in new}:
            if stamps.all_ranks(new, "reduced", ranks, restart):
                return stamps.last(new, "reduced", restart)
        return None

    def coordinator(self):
        """Waits until there is one on the endpoint's node, and returns its pid."""
        def found():
            return next((pid for pid in marked(self.endpoint.mark) if name_of(pid) == "ddp-coordinator"), None)

        return self.endpoint.until(found, "a coordinator")

    def heard_again(self, killed_at):
        """Returns how long it took until all agents had a link again, in seconds."""
        deadline = time.monotonic() + DEADLINE
        while not all(BACK in each.err() for each in self.jobs):
            if time.monotonic() > deadline:
                raise WrongResult(f"an agent did not hear from a coordinator again: {[each.err() for each in self.jobs]}")
            time.sleep(0.001)
        return now() - killed_at

    def check_untouched(self):
        started = {stamp.rank: stamp.pid for stamp in stamps.of(stamps.read(self.path), "started")}
        if started != self.workers or not all(name_of(pid) == "bench_worker" for pid in self.workers.values()):
            raise WrongResult(f"workers were {self.workers}, and now are {started}")


def now():
    return time.clock_gettime(time.CLOCK_REALTIME)


def name_of(pid):
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm") as file:
        return file.read().strip()
    return ""


def kill_coordinator(nodes):
    """Returns the figures of a kill of the coordinator alone; and leaves it killed another time."""
    victim, killed_at = nodes.coordinator(), now()
    os.kill(victim, signal.SIGKILL)
    took = nodes.heard_again(killed_at)
    nodes.check_untouched()
    victim, killed_at = nodes.coordinator(), now()
    os.kill(victim, signal.SIGKILL)
    return {"heard_ms": 1e3 * took}, killed_at


def kill_at_once(node):
    """Kills all of a node before any process of it can react to the death of another, as a power cut does."""
    pids = marked(node.mark)
    for number in signal.SIGSTOP, signal.SIGKILL:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def process_lost(commands, path, only_a_worker):
    with contextlib.ExitStack() as stack:
        nodes = Nodes(stack, commands, path)
        figures, killed_at = ({}, now()) if only_a_worker else kill_coordinator(nodes)
        os.kill(nodes.workers[1], signal.SIGKILL)
        for each in nodes.jobs:
            ended_well(each)
        reduced_at = nodes.all_reduced(NODES, killed_at)
        if reduced_at is None:
            raise WrongResult("a rank of the round after the failure has no sum")
        return {**figures, "failure_ms": 1e3 * (reduced_at - killed_at)}


def node_lost(commands, path, is_killed, goes_on, patience):
    """goes_on: the job has to; otherwise it may also end."""
    with contextlib.ExitStack() as stack:
        nodes = Nodes(stack, commands, path)
        lost_at, deadline = now(), time.monotonic() + patience
        if is_killed:
            kill_at_once(nodes.endpoint)
        else:
            nodes.endpoint.signal(signal.SIGTERM)
        while (back_at := nodes.all_reduced(NODES - 1, lost_at)) is None:
            if not any(each.running() for each in nodes.others):
                if goes_on:
                    raise WrongResult(f"the job ended: {[each.said() for each in nodes.others]}")
                return {"ended_ms": 1e3 * (now() - lost_at)}
            if time.monotonic() > deadline:
                raise NotDone(f"neither went on nor ended within {patience} s")
            time.sleep(0.01)
        if not is_killed and nodes.endpoint.wait() != 128 + signal.SIGTERM:
            raise WrongResult(f"the node that was told to stop: {nodes.endpoint.said()}")
        return {"back_ms": 1e3 * (back_at - lost_at)}


class Etcd:
    """Three members, which end with this object; or why there are none."""

    def __init__(self, root):
        self._folder = tempfile.TemporaryDirectory()
        self._script = os.path.join(root, "scripts/clusters/etcd")
        self._cluster = os.path.join(self._folder.name, "etcd")

    def __enter__(self):
        up = subprocess.run([self._script, "up", self._cluster, "--members", "3", "--until-end-of-caller"],
                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if up.returncode not in (0, 77):
            raise WrongResult(f"etcd: {up.stderr}")
        self.not_run = up.stderr.strip()
        self.endpoints = ""
        if up.returncode == 0:
            with open(os.path.join(self._cluster, "endpoints")) as file:
                self.endpoints = file.read().strip()
        return self

    def __exit__(self, *_):
        if self.endpoints:
            subprocess.run([self._script, "down", self._cluster], check=True, stdin=subprocess.DEVNULL)
        self._folder.cleanup()


def contender(bench, name, etcd, nnodes, run):
    """name: launcher, and behind a comma where what coordinates keeps its journal. run(commands, path) returns figures."""
    launcher_name, _, place = name.partition(", ")
    launcher = bench.launcher(launcher_name, 1)
    command = [*launcher.prefix, "--nnodes", nnodes, "--max-restarts", "3", "--rdzv-id", "ID", "--rdzv-backend"]
    if place.startswith("etcd"):
        command += ["etcd", "--rdzv-endpoint", "ETCD"]
    else:
        command += ["c10d", "--rdzv-endpoint", "127.0.0.1:PORT", "--rdzv-conf", "is_host=IS_HOST"]
    if launcher_name == "torchrun":
        command.append("--no-python")
    command += [bench.binary("bench_worker"), "FILE", "again"]

    def measure():
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "stamps")
            words = {"FILE": path, "ETCD": etcd.endpoints, "ID": uuid.uuid4().hex}
            port = str(free_port())
            commands = [[words.get(word, word).replace("PORT", port).replace("IS_HOST", "01"[node == 0]) for word in command]
                        for node in range(NODES)]
            return run(commands, path)

    not_run = launcher.not_run or (etcd.not_run if place.startswith("etcd") else "")
    return Contender(name, command, measure, launcher.version, not_run, ours=launcher_name == "ddprun")


def of_process(bench, etcd):
    def one(name, only_a_worker=False):
        return contender(bench, name, etcd, "3", lambda commands, path: process_lost(commands, path, only_a_worker))

    return bench.in_turn("coordinator's process killed", [
        one("ddprun, only a worker", only_a_worker=True), one("ddprun"), one("ddprun, etcd, only a worker", only_a_worker=True),
        one("ddprun, etcd")], runs=10)


def of_node(bench, etcd, name, is_killed, names, runs):
    def one(name):
        patience = TORCHRUN_PATIENCE if name == "torchrun" else DEADLINE
        return contender(bench, name, etcd, "2:3",
                         lambda commands, path: node_lost(commands, path, is_killed, "etcd" in name, patience))

    return bench.in_turn(name, [one(each) for each in names], runs)


def measure(bench):
    # By default 16 s pass until the others go on without a node that was killed.
    names = ["ddprun, etcd", "ddprun", "torchrun"]
    with Etcd(bench.root) as etcd:
        groups = [of_process(bench, etcd),
                  of_node(bench, etcd, "endpoint's node told to stop", False, names[:1] if bench.quick else names, runs=3)]
        if not bench.quick:
            groups.insert(1, of_node(bench, etcd, "endpoint's node killed", True, names, runs=3))
    return groups


def write(page, groups):
    for group in groups:
        if "process" in group.name:
            page.rows(group, [Column("heard again ms", "heard_ms"), Column("failure ms", "failure_ms")])
        else:
            page.rows(group, [Column("back ms", "back_ms", 0), Column("ended ms", "ended_ms", 0)])
    page.commands(groups)
