# SPDX-License-Identifier: BSD-3-Clause
"""What a kill costs a training: the gap between two steps on all ranks."""
import contextlib
import os
import random
import shlex
import signal
import socket
import statistics
import tempfile
import time

from .. import stamps
from ..page import Column
from ..processes import job
from ..rounds import NotDone, Row, Group, WrongResult

TITLE = "From a kill to the next step"
ABOUT = """
Four workers train: in Python 11 million parameters with AdamW, in C++ the language model of `train` with 10 million.
Every few steps one worker, or all of them, are killed with SIGKILL at a random instant. Every rank stamps each step
when it is done with it. The runs of a row are the kills of one job.

* lost: from the last step that all ranks were done with before the kill, until all are done with the next one, less the
  median time of a step before the first kill. 0 would be a kill that nobody notices.
* next step: from the kill until then.
* again: steps that were done before the kill and had to be done again.
* attempts: `ddprun --on-failure replace` with `ddprun.attempts` over PyTorch's Gloo: the other three processes stay. Each
  worker has an agent of its own, as on four nodes.
* survivors: the same with `ddp::run`, within which `train` trains, over libddp's backend "ddp".
* torchft: its lighthouse, and a torchrun for each worker, with the times of torchft's example. The other three go on, so a
  step counts when three are done with it; the fourth comes back with a later one.
* all back: from the kill until all four are done with one step again.
* keep: `ddprun --keep-memory`, with `ddprun.keep` or `train --keep`; `--keep-memory=shadow` where all workers are
  killed, since they may be within one update. checkpoint: a restart from the newest checkpoint,
  which rank 0 writes after every 10 steps.
* Survivors in C++ lose their time so (`--trace`, 30 kills): 14 ms until all nodes know of the death; 60 more until the last
  survivor has come to its next collective and left its groups, and the kernel has taken the dead process's memory back; 15
  until the new process has joined the others; 70 for 115 MB of state; and a first step that takes twice the time of
  another, since the new process and all new groups touch their memory for the first time.
"""
WORKERS = 4
EVERY = 10  # steps between checkpoints


class Steps:
    """What the workers' stamps say."""

    def __init__(self, path):
        self.path = path

    def done(self):
        """Returns {step: [the first time that each rank was done with it]}."""
        first = {}
        for stamp in stamps.read(self.path):
            first.setdefault(int(stamp.what), {}).setdefault(stamp.rank, stamp.at)
        return {step: list(ranks.values()) for step, ranks in first.items()}

    def newest(self):
        return max((int(stamp.what) for stamp in stamps.read(self.path)), default=0)

    def all_did(self, step):
        return len(self.done().get(step, [])) == WORKERS

    def pids(self):
        """Returns the workers of the newest round, by rank."""
        all_stamps = stamps.read(self.path)
        newest = max(stamp.restart for stamp in all_stamps)
        return {stamp.rank: stamp.pid for stamp in all_stamps if stamp.restart == newest}

    def time_of_a_step(self):
        ends = {}
        for stamp in stamps.read(self.path):
            if stamp.rank == 0:
                ends.setdefault(stamp.restart, []).append(stamp.at)
        return statistics.median(b - a for times in ends.values() for a, b in zip(times[2:], times[3:]))


def kill_once(running, steps, kills_all):
    """Kills at a random instant of a step, and returns when that was."""
    before = steps.newest()
    target = before + random.randrange(4, 10)
    running.until(lambda: steps.newest() >= target, f"step {target}")  # one that is taken from a peer has no stamp
    time.sleep(random.random() * steps.time_of_a_step())
    pids = steps.pids()
    killed_at = time.clock_gettime(time.CLOCK_REALTIME)
    for pid in pids.values() if kills_all else [random.choice(list(pids.values()))]:
        with contextlib.suppress(ProcessLookupError):  # it has noticed the first one's death
            os.kill(pid, signal.SIGKILL)
    return killed_at


def figures_of(killed_at, running, steps, step_time, ranks=WORKERS):
    """Waits until `ranks` of them are done with a step that fewer were done with before."""
    def ends(ranks=ranks):
        return {step: sorted(times)[ranks - 1] for step, times in steps.done().items() if len(times) >= ranks}

    last = max(step for step, end in ends().items() if end <= killed_at)
    running.until(lambda: max(ends()) > last, f"the step after {last}, after a kill")
    reached = min(step for step in ends() if step > last)
    end = ends()[reached]
    again = sum(1 for stamp in stamps.read(steps.path)
                if stamp.rank == 0 and int(stamp.what) <= last and killed_at < stamp.at < end)
    lost = end - ends()[last] - (reached - last) * step_time

    def all_back():
        return [end for step, end in ends(WORKERS).items() if step > last and end > killed_at]

    running.until(all_back, "a step of all workers, after a kill")
    return {"lost_ms": 1e3 * lost, "next_ms": 1e3 * (end - killed_at), "again": again, "step_ms": 1e3 * step_time,
            "all_ms": 1e3 * (min(all_back()) - killed_at)}


def kills_of(command, environment, kills_all, count, patience, ranks=WORKERS):
    """Runs a job, kills in it, and returns a dictionary of figures for each kill."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "stamps")
        with job(*[word.replace("FILE", path) for word in command], environment=environment) as running:
            running.patience = patience
            steps = Steps(path)
            running.until(lambda: steps.all_did(EVERY + 2), f"the first {EVERY + 2} steps")
            step_time = steps.time_of_a_step()
            return [figures_of(kill_once(running, steps, kills_all), running, steps, step_time, ranks)
                    for _ in range(count)]


def agents_of(bench, *options_and_program):
    """Returns the command that runs a job of as many agents as workers, on this machine."""
    with socket.socket() as probe:  # the port of this job, of which there is one
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    agent = (f"{bench.binary('ddprun')} --on-failure replace --max-restarts 100000 --secret none --nnodes {WORKERS} "
             f"--nproc_per_node 1 --master_addr 127.0.0.1 --master_port {port}")
    program = shlex.join(options_and_program)
    words = f"for node in $(seq {WORKERS - 1}); do {agent} --node_rank $node {program} & done; "
    return ["bash", "-c", words + f"exec {agent} --node_rank 0 {program}"]


def torchft_groups(bench, script):
    """Returns the command that runs torchft's lighthouse, and a torchrun for each group of one replica."""
    with socket.socket() as probe:  # the port of the lighthouse
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = os.path.dirname(bench.torchft_python)
    group = (f"REPLICA_GROUP_ID=$group {folder}/torchrun --standalone --max-restarts 100000 --nproc_per_node 1 {script} "
             "FILE torchft")
    return ["bash", "-c",
            f"export TORCHFT_LIGHTHOUSE=http://127.0.0.1:{port} NUM_REPLICA_GROUPS={WORKERS}; "
            f"{folder}/torchft_lighthouse --min_replicas 1 --quorum_tick_ms 100 --join_timeout_ms 10000 "
            f"--bind 127.0.0.1:{port} & for group in $(seq 0 {WORKERS - 1}); do {group} & done; wait"]


def contenders(bench, kills_all):
    """Yields (name, command, environment, why not, most kills)."""
    keep = "--keep-memory=shadow" if kills_all else "--keep-memory"  # all may be within one update
    script = os.path.join(bench.root, "apps/ddp_bench/worker/kept_train.py")
    python = {"PYTHON_EXEC": bench.python, "PYTHONPATH": os.path.join(bench.root, "runtime/python"),
              "PATH": os.path.dirname(bench.binary("ddprun")) + os.pathsep + os.environ["PATH"]}
    ddprun = [bench.binary("ddprun"), "--max-restarts", "100000", "--nproc_per_node", str(WORKERS)]
    train = [bench.binary("train"), "--width", "512", "--layers", "3", "--heads", "8", "--context", "32",
             "--global-batch", "4", "--steps", "1000000", "--validate-every", "0", "--sample-bytes", "0",
             "--warmup", "100", "--times", "FILE", "--checkpoint", "FILE.safetensors"]
    yield "PyTorch, keep", [*ddprun, keep, "--preload", "auto", script, "FILE", "keep"], python, bench.no_torch, 20
    if not kills_all:
        attempts = agents_of(bench, "--preload", "auto", script, "FILE", "attempts")
        yield "PyTorch, attempts", attempts, python, bench.no_torch, 20
        yield "PyTorch, torchft", torchft_groups(bench, script), {}, bench.no_torchft, 10
    torchrun = bench.launcher("torchrun", WORKERS)
    yield ("PyTorch, torchrun, checkpoint",
           ["env", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1", *torchrun.prefix, "--max-restarts", "100000", script, "FILE",
            "checkpoint", str(EVERY)], {}, torchrun.not_run, 5)
    if not kills_all:
        yield "C++, survivors", agents_of(bench, *train, "--checkpoint-every", "0"), {}, "", 20
    yield "C++, keep", [*ddprun, keep, *train, "--keep", "--checkpoint-every", "0"], {}, "", 20
    yield "C++, checkpoint", [*ddprun, *train, "--checkpoint-every", str(EVERY)], {}, "", 20


def row_of(bench, name, command, environment, why_not, most, kills_all):
    row = Row(name, " ".join(bench.shown(word) for word in command), not_run=why_not)
    if why_not or bench.only and not any(word in name for word in bench.only):
        return row
    count = min(bench.runs(20), most)
    try:
        ranks = WORKERS - 1 if "torchft" in name else WORKERS
        row.runs = kills_of(command, environment, kills_all, count, patience=60, ranks=ranks)
    except AssertionError as late:
        if "torchrun" not in name and "torchft" not in name:
            raise WrongResult(f"{name}: {late}") from late
        row.runs, row.failures = [{}], [str(NotDone(str(late).partition(";")[0]))]
    return row


def measure(bench):
    return [Group(name, [row_of(bench, *one, kills_all) for one in contenders(bench, kills_all)])
            for name, kills_all in (("one worker killed", False), ("all workers killed", True))]


def write(page, groups):
    for group in groups:
        page.rows(group, [Column("lost ms", "lost_ms", 0), Column("next step ms", "next_ms", 0),
                          Column("all back ms", "all_ms", 0), Column("again", "again", 0, spread=False), Column("a step ms", "step_ms", 0, spread=False)],
                  base="PyTorch, keep")
    page.commands(groups)
