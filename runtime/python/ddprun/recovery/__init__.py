# SPDX-License-Identifier: BSD-3-Clause
"""Kept memory for PyTorch: a model and its optimizer's state that outlive their process (`ddprun --keep-memory`).

Start reading at `_run.py`. docs/recovery.md is the users' page; the protocol is in rendezvous/kept/arena.hpp.
"""
from ddprun.recovery._run import Run, keep

__all__ = ["Run", "keep"]
