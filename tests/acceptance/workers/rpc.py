# SPDX-License-Identifier: BSD-3-Clause
"""torch RPC between roles: each worker of the role master lets every trainer add numbers. Joins through env://."""
import os

import torch
import torch.distributed.rpc as rpc

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
role = f"{os.environ['ROLE_NAME']}{os.environ['ROLE_RANK']}"
# Selects the loopback device by its address; the default is the device that the machine's name resolves to.
options = rpc.TensorPipeRpcBackendOptions(init_method="env://", rpc_timeout=60)
rpc.init_rpc(role, rank=rank, world_size=world, rpc_backend_options=options)
if role.startswith("master"):
    trainers = world - int(os.environ["ROLE_WORLD_SIZE"])
    for trainer in range(trainers):
        answer = rpc.rpc_sync(f"trainer{trainer}", torch.add, args=(torch.ones(2), trainer))
        assert answer.tolist() == [trainer + 1.0] * 2, answer
    os.write(1, f"{role} was answered by {trainers} trainers\n".encode())
rpc.shutdown()  # waits until all ranks are done
