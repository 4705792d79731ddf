# SPDX-License-Identifier: BSD-3-Clause
"""What a job of thousands of nodes costs its coordinator: time and messages against the number of agents."""
from .. import plots
from ..page import Column
from ..processes import json_lines
from ..rounds import Contender, WrongResult

TITLE = "Rendezvous"
ABOUT = """
One real ddprun coordinates; the agents of all other nodes are connections of one program on the same machine, which is
loaded by both.

* form: from the first agent's connect until the last one has its ranks. stop: from one agent's report of a failure until
  the last one was told to stop. restart: from then, all being idle, until the last one has its ranks in the next round.
* messages: states and directives, both ways. Each is one frame; its size does not depend on the number of agents.
* CPU: of the coordinating ddprun's agent, coordinator and store, from form to end. memory: the most they had.
"""
STEPS = ["form", "stop", "restart", "end"]


def figures_of(lines, nodes):
    steps = {line["step"]: line for line in lines}
    if not set(STEPS) <= set(steps) or any(line["nodes"] != nodes for line in lines):
        raise WrongResult(f"{nodes} agents were to be told {STEPS}; this was said: {lines}")
    figures = {}
    for step in STEPS[:3]:
        figures |= {f"{step}_ms": 1e3 * steps[step]["seconds"], f"{step}_messages": steps[step]["messages"]}
    return {**figures, "cpu_ms": 1e3 * sum(steps[step]["coordinator_cpu_s"] for step in STEPS),
            "mib": max(line["resident_mb"] for line in lines)}


def contender(bench, nodes):
    command = [bench.binary("ddp_bench"), "rendezvous", "--nodes", str(nodes), "--beat", "0", "--ddprun",
               bench.binary("ddprun")]
    return Contender("ddprun", command, lambda: figures_of(json_lines(command), nodes),
                     bench.launcher("ddprun", 1).version)


def measure(bench):
    return [bench.in_turn(f"{nodes:,}", [contender(bench, nodes)], runs=5, facts={"nodes": nodes})
            for nodes in ([8, 64, 512] if bench.quick else [8, 32, 128, 500, 1000, 2000, 4000])]


def write(page, groups):
    columns = [Column("form ms", "form_ms"), Column("messages", "form_messages", 0, spread=False),
               Column("stop ms", "stop_ms"), Column("messages", "stop_messages", 0, spread=False),
               Column("restart ms", "restart_ms"), Column("messages", "restart_messages", 0, spread=False),
               Column("CPU ms", "cpu_ms"), Column("memory MiB", "mib", spread=False)]
    page.across("agents", groups, "ddprun", columns)

    def draw(what, axes):
        plots.curves(axes, {step: [(group.facts["nodes"], group.row("ddprun").median(f"{step}_{what}"))
                                   for group in groups] for step in STEPS[:3]})
        axes.set_xlabel("agents")
        axes.set_ylabel(what)

    page.plot("rendezvous_time", "Time to form, stop and restart a job against the number of its agents",
              lambda axes: draw("ms", axes))
    page.plot("rendezvous_messages", "Messages to form, stop and restart a job against the number of its agents",
              lambda axes: draw("messages", axes))
    page.commands(groups)
