# SPDX-License-Identifier: BSD-3-Clause
"""The backend "ddp" of torch.distributed: collectives on the CPU by libddp, for PyTorch 2.4 and newer.

    torch.distributed.init_process_group("ddp")                      # CPU tensors
    torch.distributed.init_process_group("cpu:ddp,cuda:nccl")        # CUDA tensors by NCCL; PyTorch 2.14 and newer

PyTorch 2.14 and newer finds the backend by its name. Older ones need `import ddprun.torch` first.
docs/torch_distributed.md says what is promised, and what differs from PyTorch's Gloo.
"""
from ddprun.torch._backend import register, serve_gloo

__all__ = ["register", "serve_gloo"]

register()
