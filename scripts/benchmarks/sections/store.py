# SPDX-License-Identifier: BSD-3-Clause
"""ddp_store and PyTorch's TCPStore under the same load."""
import functools
import os
import subprocess
import sys

from ..page import number
from ..processes import json_lines
from ..rounds import Contender, WrongResult

TITLE = "The store"
ABOUT = """
`ddp_store` beside the server of PyTorch's `TCPStore` (libuv, its default). Each load meets a fresh server; the load
generator is on the same machine.

* ops/s: operations a second, the load generator's share of the machine included. CPU: of the server for an operation in µs,
  as the kernel counts it: what noise changes least. median: of an exchange as its client sees it, in µs.
* memory: bytes of the server for a connection (storm), or for a key beside its own data (keys).
* ratio: PyTorch's CPU by ours, pair by pair.
* closed loop N: N connections, one get of 64 bytes under way on each. pipelined N: 16 gets in one go. multi_get N, wait N:
  N keys in one request. gloo init N: what N processes do in `init_process_group`. storm N: N clients come at once.
"""
NAMES = {"ddp_store": "ours", "TCPStore": "libuv"}
FIGURES = ["ops", "cpu_us", "median_us", "bytes"]
# PyTorch's server asks the DNS for the name of each client. Where no answer comes that is all it does; in a network of its
# own the question fails at once.
ALONE = ["unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


@functools.cache
def has_networks_of_its_own():
    try:
        return subprocess.run([*ALONE, "true"], stderr=subprocess.DEVNULL).returncode == 0
    except FileNotFoundError:
        return False


def scenarios(bench):
    if bench.quick:
        return ["closed", "gloo"]
    names = ["closed", "pipelined", "multi_get", "wait", "gloo", "big", "keys"]
    return names + ["storm"] if has_networks_of_its_own() else names


def figures_of(lines):
    figures = {}
    for line in lines:
        if line["operations"] <= 0 or line["seconds"] <= 0:
            raise WrongResult(f"nothing was done: {line}")
        values = {"ops": line["operations"] / line["seconds"], "cpu_us": line["server_us"],
                  "median_us": line["median_us"], "bytes": line["resident_bytes"]}
        figures |= {f"{line['scenario']}: {figure}": values[figure] for figure in FIGURES}
    return {**figures, "mib": max(line["server_bytes"] for line in lines) / 2**20}


def contender(bench, name, version, not_run):
    seconds, storm = ("0.05", "200") if bench.quick else ("1", "10000")
    command = [*(ALONE if has_networks_of_its_own() else []), sys.executable,
               os.path.join(bench.root, "scripts/benchmarks/store_round.py"), os.path.join(bench.build, "bin"),
               bench.python or "python3", NAMES[name], seconds, storm, *scenarios(bench)]
    return Contender(name, command, lambda: figures_of(json_lines(command, deadline=600)), version, not_run)


def measure(bench):
    torch_version = "" if bench.no_torch else bench.torch_version
    return [bench.in_turn("store", [contender(bench, "ddp_store", bench.launcher("ddprun", 1).version, ""),
                                    contender(bench, "TCPStore", torch_version, bench.no_torch)], runs=5)]


def digits(value):
    return 0 if value is None or value >= 1000 else 1 if value >= 10 else 2


def write(page, groups):
    ours, theirs = (groups[0].row(name) for name in NAMES)
    loads = list(dict.fromkeys(figure.split(": ")[0] for figure in ours.runs[0] if ": " in figure))
    lines = []
    for load in loads:
        line = [load]
        for figure in FIGURES:
            for row in ours, theirs:
                value = row.median(f"{load}: {figure}")
                line.append(number(value or None, digits(value)))
        lines.append([*line, number(theirs.ratio(ours, f"{load}: cpu_us"), 1)])
    heads = [f"{figure} {name}" for figure in ("ops/s", "CPU", "median", "memory") for name in ("ours", "PyTorch")]
    page.table(["load", *heads, "ratio"], lines)
    if theirs.not_run:
        page.text(f"TCPStore: not run: {theirs.not_run}")
    sizes = [f"{row.name} {number(row.median('mib'), 1)} MiB" for row in (ours, theirs) if row.runs]
    page.text(f"Runs of each: {len(ours.runs)}. Before the first client: {', '.join(sizes)}.")
    if "storm 10000" not in loads:
        page.text("storm: not run" + ("" if has_networks_of_its_own() else ": no network of its own for it here"))
    page.commands(groups)
