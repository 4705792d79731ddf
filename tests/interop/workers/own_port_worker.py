# SPDX-License-Identifier: BSD-3-Clause
"""Sets a MASTER_PORT of its own, as scripts for the old torch.distributed.launch do.

usage: own_port_worker.py PORT [fork] [alone]
fork: starts two processes of its own, which do so. alone: without the launcher's store.
"""
import os
import sys

import torch.distributed
import torch.multiprocessing

port, options = sys.argv[1], sys.argv[2:]


def join(rank, world_size):
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=port)
    if "alone" in options:
        os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=world_size)
    torch.distributed.barrier()
    os.write(1, f"rank {rank} of {world_size} is through\n".encode())
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    if "fork" in options:
        torch.multiprocessing.start_processes(join, args=(2,), nprocs=2, start_method="fork")
    else:
        join(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
