# SPDX-License-Identifier: BSD-3-Clause
"""Uses timers of torch.distributed.elastic. Rank 1 is stuck in its step before the first restart."""
import os
import signal

import torch.distributed.elastic.timer as timer

rank = os.environ["RANK"]
timer.configure(timer.FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]))
for step in range(3):
    with timer.expires(after=60, scope=f"step {step}"):
        pass
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    with timer.expires(after=60 if rank == "0" else 0.3, scope="stuck"):
        signal.pause()
os.write(1, f"rank {rank} is through\n".encode())
