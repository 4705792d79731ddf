# SPDX-License-Identifier: BSD-3-Clause
"""ddprun starts, watches and restarts the worker processes of a distributed training job.

    ddprun --nproc_per_node 8 train.py          # in a shell, as torchrun
    python -m ddprun --nproc_per_node 8 train.py
    ddprun.launch(train, nproc_per_node=8)      # from Python, also in a notebook: returns results by rank

`launch` calls a function in many processes; `LaunchConfig` holds its options, which are those of the command line;
`WorkerError` says which rank failed, with its traceback. `progress` shows `ddprun ps` how far a rank is. `keep` has a
PyTorch model outlive its process, so that a restart loses no step, and `attempts` has processes stay when others fail.
`find_binary` and `find_library` return the paths of what came with this package. `ddprun --help` explains the options.
"""
from typing import TYPE_CHECKING, Any

from ddprun._binary import find_binary, find_library

if TYPE_CHECKING:
    from ddprun._config import LaunchConfig
    from ddprun._launch import LaunchError, WorkerError, launch
    from ddprun._progress import progress
    from ddprun.recovery import attempts, keep

__all__ = [
    "LaunchConfig", "LaunchError", "WorkerError", "attempts", "find_binary", "find_library", "keep", "launch", "progress"
]


def __getattr__(name: str) -> Any:
    """Imports on first use what `python -m ddprun` and `find_binary` do without."""
    if name not in __all__:
        raise AttributeError(f"module 'ddprun' has no attribute {name!r}")
    import importlib

    homes = {
        "LaunchConfig": "ddprun._config",
        "attempts": "ddprun.recovery",
        "keep": "ddprun.recovery",
        "progress": "ddprun._progress",
    }
    module = homes.get(name, "ddprun._launch")
    return getattr(importlib.import_module(module), name)
