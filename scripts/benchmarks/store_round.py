# SPDX-License-Identifier: BSD-3-Clause
"""One server of the c10d store under load: each scenario meets a fresh one, and its figures are a line of JSON.

usage: store_round.py BUILD PYTHON SERVER SECONDS STORM SCENARIO ...
  BUILD    folder with ddp_store and ddp_bench        SERVER   ours, libuv or legacy, PyTorch's two
  PYTHON   with torch; any where SERVER is ours       SECONDS, STORM   see ddp_bench store --help
"""
import json
import os
import re
import resource
import subprocess
import sys

TORCH_SERVER = """
import sys, torch.distributed as d
store = d.TCPStore("127.0.0.1", 0, world_size=None, is_master=True, wait_for_workers=False,
                   use_libuv=sys.argv[1] == "libuv")
print("listening on 127.0.0.1:%d" % store.port, flush=True)
sys.stdin.read()
"""


class Server:
    """A store in a process of its own; it ends with its stdin at the latest."""

    def __init__(self, name, build, python):
        if name == "ours":
            command = [os.path.join(build, "ddp_store"), "--port", "0", "--bind", "127.0.0.1"]
        else:
            command = [python, "-c", TORCH_SERVER, name]
        # PyTorch's server holds as many connections as the soft limit allows.
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True, preexec_fn=allow_many_files)
        line = self.process.stdout.readline()
        if "127.0.0.1:" not in line:
            sys.exit(f"{name} did not start: {' '.join(command[:2])}")
        self.port = re.search(r"127\.0\.0\.1:(\d+)", line).group(1)
        with open(f"/proc/{self.process.pid}/statm") as statm:
            self.resident = int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate()


def allow_many_files():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def measure(name, build, python, seconds, storm, scenario):
    """What ddp_bench says of a scenario over a fresh server, and how large that was before its first client."""
    with Server(name, build, python) as server:
        load = subprocess.run([os.path.join(build, "ddp_bench"), "store", "--port", server.port, "--pid",
                               str(server.process.pid), "--seconds", str(seconds), "--storm", str(storm), scenario],
                              stdout=subprocess.PIPE, text=True)
        if load.returncode != 0:
            sys.exit(f"the load {scenario} on {name} failed")
        return [{**json.loads(line), "server_bytes": server.resident} for line in load.stdout.splitlines()]


if __name__ == "__main__":
    build, python, name, seconds, storm, *scenarios = sys.argv[1:]
    for scenario in scenarios:
        for measured in measure(name, build, python, seconds, storm, scenario):
            print(json.dumps(measured), flush=True)
