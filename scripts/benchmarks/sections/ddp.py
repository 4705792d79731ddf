# SPDX-License-Identifier: BSD-3-Clause
"""Data-parallel training: what more workers bring, and what gradients' way to the other ranks adds to a step."""
import json
import os
import re
import statistics
import subprocess

from .. import plots
from ..page import Column, cell
from ..processes import ended_well, job, json_lines
from ..rounds import Contender, WrongResult

TITLE = "DistributedDataParallel"
ABOUT = """
`train`, the example job, and a PyTorch model of the same shapes under PyTorch's DDP: 16 sequences of 64 bytes a step,
whatever the number of workers; one thread a worker. libddp's gradients go through its backend "ddp", PyTorch's through
Gloo. Their arithmetic is Eigen's and PyTorch's; what can be compared is the efficiency.

* tokens/s: of all workers together.
* efficiency: tokens/s, divided by those of one worker in the same turn and by the number of workers, or of CPUs where
  those are fewer.

Exposed communication, with gradients of ResNet-18's shapes (`scripts/benchmarks/ddp --help` has the details): a backward
of 200 ms, of which the CPU computes a tenth, as a host does while its GPU computes.

* exposed ms: what a step takes longer than the same library's backward without communication.
* plain: one all_reduce of all gradients at the end. ddp: DistributedDataParallel, which sends buckets of this many
  MiB meanwhile. ddp_view: the same with gradients in the buckets.
"""
LIBRARIES = ["libddp", "torch"]
SPEED = Column("tokens/s", "tokens_s", 0)


def libddp_training(command, workers):
    def measure():
        with job(*command) as running:
            ended_well(running)
            said = running.out()
        speed = re.search(r"step (\d+)/\1 .* ([\d.]+) tokens/s", said)
        losses = [float(loss) for loss in re.findall(r"validation after \d+ steps: ([\d.]+)", said)]
        if f"job: {workers} workers" not in said or not speed or not losses[-1] < losses[0] - 0.5:
            raise WrongResult(f"{workers} workers were to train; they said: {said}")
        return {"tokens_s": float(speed.group(2)), "loss": losses[-1]}

    return measure


def torch_training(command, workers, python):
    def measure():
        line, = json_lines(command, {"GLOO_SOCKET_IFNAME": "lo", "PYTHON_EXEC": python})
        if line["ranks"] != workers or not line["last_loss"] < line["first_loss"] - 0.5:
            raise WrongResult(f"{workers} workers were to train; they said: {line}")
        return {"tokens_s": line["tokens_per_second"]}

    return measure


def trainers(bench, library, counts):
    steps = "40" if bench.quick else "300"
    for workers in counts:
        launcher = bench.launcher("ddprun", workers)
        name = f"{workers} worker{'s' if workers > 1 else ''}"
        if library == "libddp":
            command = [*launcher.prefix, bench.binary("train"), "--steps", steps, "--validate-every", "0",
                       "--checkpoint-every", "0", "--sample-bytes", "0"]
            yield Contender(name, command, libddp_training(command, workers), launcher.version)
        else:
            command = [*launcher.prefix, os.path.join(bench.root, "apps/ddp_bench/worker/torch_train.py"), steps]
            version = "" if bench.no_torch else bench.torch_version
            yield Contender(name, command, torch_training(command, workers, bench.python), version, bench.no_torch)


def same_loss_everywhere(group):
    """How many workers share a batch changes its sums' order, and nothing else."""
    losses = [row.median("loss") for row in group.rows]
    if max(losses) - min(losses) > 0.05:
        raise WrongResult(f"the same training came to different losses: {losses}")
    return group


def exposed(lines, library):
    """{'ddp 25': ms}: medians over the rounds of what a step takes longer than the backward of the same round."""
    took = {(line["step"], line["bucket_mib"]): line["round_ms"] for line in lines}
    if ("backward", 0) not in took or len(took) < 3:
        raise WrongResult(f"{library} was to measure steps with and without communication; it said: {lines}")
    return {f"{step} {mib:g}": statistics.median(a - b for a, b in zip(rounds, took["backward", 0]))
            for (step, mib), rounds in took.items() if step != "backward"}


def steppers(bench):
    program = bench.binary("ddp_bench")
    model, seconds, rounds = ("mlp", 0.01, 2) if bench.quick else ("resnet18", 0.2, 10)
    described = json.loads(subprocess.run([program, "ddp", "--describe", "--model", model], check=True,
                                          stdout=subprocess.PIPE, text=True).stdout)
    buckets, busy = [25, 4], 0.1
    plan = {**described, "backward": seconds, "busy": busy, "bucket_mib": buckets, "rounds": rounds}
    launcher = bench.launcher("ddprun", 2)
    ours = [*launcher.prefix, program, "ddp", "--model", model, "--backward", str(seconds), "--busy", str(busy),
            "--rounds", str(rounds), "--bucket-mib", *map(str, buckets), "--updates-per-second",
            str(described["updates_per_second"])]
    script = [*launcher.prefix, os.path.join(bench.root, "apps/ddp_bench/steps/torch_steps.py"),
              os.path.join(bench.build, "lib/libbackward_work.so")]
    environment = {"GLOO_SOCKET_IFNAME": "lo", "PYTHON_EXEC": bench.python}
    yield Contender("libddp", ours, lambda: exposed(json_lines(ours, environment), "libddp"), launcher.version)
    yield Contender("torch", [*script, "PLAN"],
                    lambda: exposed(json_lines([*script, json.dumps(plan)], environment), "torch"),
                    "" if bench.no_torch else bench.torch_version, bench.no_torch)


def measure(bench):
    counts = {"libddp": [1, 2], "torch": [2]} if bench.quick else dict.fromkeys(LIBRARIES, [1, 2, 4, 8])
    groups = [bench.in_turn(f"training, {library}", list(trainers(bench, library, counts[library])), runs=5,
                            facts={"workers": counts[library], "cpus": os.cpu_count()}) for library in LIBRARIES]
    same_loss_everywhere(groups[0])
    return [*groups, bench.in_turn("exposed communication, 2 ranks", list(steppers(bench)), runs=5)]


def efficiency(group, workers, row):
    alone = group.row("1 worker")
    return row.ratio(alone, "tokens_s") / min(workers, group.facts["cpus"]) if alone else None


def write(page, groups):
    *training, steps = groups
    lines, series = [], {}
    for library, group in zip(LIBRARIES, training):
        for workers, row in zip(group.facts["workers"], group.rows):
            if row.not_run:
                lines.append([library, row.name, f"not run: {row.not_run}", "", ""])
                continue
            share = efficiency(group, workers, row)
            series.setdefault(library, []).append((workers, row.median("tokens_s")))
            lines.append([library, row.name, str(len(row.runs)), cell(row, SPEED), f"{100 * share:.0f} %" if share else "–"])
    page.table(["library", f"workers on {training[0].facts['cpus']} CPUs", "runs", "tokens/s", "efficiency"], lines, left=2)

    def draw(axes):
        plots.curves(axes, series)
        axes.set_xlabel("workers")
        axes.set_ylabel("tokens/s")

    page.plot("ddp_training", "Tokens a second against the number of workers", draw)
    kinds = list(steps.row("libddp").runs[0])
    page.rows(steps, [Column(f"{kind.removesuffix(' 0')} ms", kind) for kind in kinds])
    page.commands(groups)
