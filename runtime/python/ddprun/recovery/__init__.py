# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch models that outlive a failure. `keep`: in memory that outlives their process (`ddprun --keep-memory`).
`attempts`: in processes that stay when others fail (`ddprun --on-failure replace` or `shrink`).

Start reading at `_run.py` for keep, whose protocol is in rendezvous/kept/arena.hpp, and at `_attempts.py` for attempts,
whose protocol is in docs/internals/coordination.md. docs/recovery.md is the users' page.
"""
from ddprun.recovery._attempts import Attempt, Attempts, attempts
from ddprun.recovery._run import Run, keep

__all__ = ["Attempt", "Attempts", "Run", "attempts", "keep"]
