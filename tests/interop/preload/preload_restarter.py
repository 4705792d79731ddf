# SPDX-License-Identifier: BSD-3-Clause
"""A worker that joins the group, prints what the warm parent and the agent own, and kills itself in
all rounds but the last."""
import json
import os
import signal

import torch
import torch.distributed as dist


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return list(map(int, file.read().split()))


def read(pid, name):
    with open(f"/proc/{pid}/{name}") as file:
        return file.read()


def kib(text, name):
    return int(next(line for line in text.splitlines() if line.startswith(name)).split()[1])


def owned(pid):
    return {"descriptors": len(os.listdir(f"/proc/{pid}/fd")), "threads": len(os.listdir(f"/proc/{pid}/task")),
            "resident": kib(read(pid, "status"), "VmRSS:"), "anonymous": kib(read(pid, "smaps_rollup"), "Anonymous:")}


last = os.environ["TORCHELASTIC_RESTART_COUNT"] == os.environ["TORCHELASTIC_MAX_RESTARTS"]
dist.init_process_group("gloo")
value = torch.ones(10)
dist.all_reduce(value)
if dist.get_rank() == 0:
    agent = os.getppid()
    parent, = (pid for pid in children(agent) if read(pid, "comm") == "ddprun warm\n")
    print(json.dumps({"agent": owned(agent), "parent": owned(parent), "children": len(children(agent)),
                      "of the parent": children(parent), "pid": parent}), flush=True)
    if not last:
        os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()  # the other worker is there while rank 0 counts, and until ddprun ends it
os._exit(0)
