# SPDX-License-Identifier: BSD-3-Clause
"""Lets those who call torch.distributed.run, or torch's elastic_launch, have their jobs run by ddprun.

ddprun_torchrun.pth puts a finder in front of sys.meta_path. When torch.distributed.launcher.api is imported, the
finder asks find_spec() here, so that the module's launch_agent() is replaced. Everything in torch that starts an
elastic job ends there. Nothing else of torch is touched, and this package is imported only then.

docs/torch_distributed_run.md says who is reached and what differs.
"""

from __future__ import annotations

import importlib.machinery
import sys
import types
from typing import Optional, Sequence

__all__ = ["find_spec"]


def find_spec(name: str, path: Optional[Sequence[str]]) -> Optional[importlib.machinery.ModuleSpec]:
    """Returns the spec of torch.distributed.launcher.api, whose loader also replaces the module's launch_agent().

    Returns None, so that other finders are asked, where the module is not to be found in `path`.
    """
    spec = importlib.machinery.PathFinder.find_spec(name, path)
    if spec is None or spec.loader is None:
        return None
    execute = spec.loader.exec_module

    def execute_and_replace(module: types.ModuleType) -> None:
        execute(module)
        try:
            from ddprun_torchrun import _launch

            _launch.replace(module)
        except Exception as error:  # torch works without this package
            print(f"ddprun: PyTorch's own launcher runs jobs, since ddprun-torchrun is damaged, or is not for this "
                  f"PyTorch: {error!r}", file=sys.stderr, flush=True)

    spec.loader.exec_module = execute_and_replace  # type: ignore[method-assign]
    return spec
