# SPDX-License-Identifier: BSD-3-Clause
"""Has DistributedDataParallel rebuild its buckets before the first step.

It does so after the first step of a process, in the order in which gradients came. A process that takes the place of a
dead one, while the others run on, would do that in the middle of their training, and call what they do not.
"""
import gc

import torch
from torch.nn.parallel import DistributedDataParallel


def settle_buckets(model: torch.nn.Module) -> None:
    """Makes the buckets of each DistributedDataParallel of the model final. All ranks call it at the same place. It does
    nothing for those that never change them, or have done it."""
    parameters = {id(parameter) for parameter in model.parameters()}
    for wrapper in [one for one in gc.get_objects() if issubclass(type(one), DistributedDataParallel)]:
        if any(id(parameter) in parameters for parameter in wrapper.parameters()):
            wrapper.reducer._push_all_rebuilt_params()
            wrapper.reducer._rebuild_buckets()
