# SPDX-License-Identifier: BSD-3-Clause
"""Runs the programs of a file over the backend "ddp" and over PyTorch's Gloo, in one job, and compares the results.

usage: worker.py operations|training [WORD...]    (programs with one of these words in their names)
"""
import importlib
import os
import sys
import traceback
import warnings

import torch
import torch.distributed as dist

import ddprun.torch  # noqa: F401  for PyTorch before 2.14, which does not find it by its name

VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
warnings.simplefilter("ignore")
os.environ["PYTHONWARNINGS"] = "ignore"
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


def outcome(program, group):
    try:
        return program(group)
    except Exception as error:
        return error


def text(value):
    return f"{type(value).__name__}: {value}" if isinstance(value, Exception) else repr(value)


def equal(one, other):
    if isinstance(one, Exception) or isinstance(other, Exception):
        return isinstance(one, Exception) and isinstance(other, Exception)  # the words are each one's own
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(equal, one, other))
    return one == other


def main():
    module = importlib.import_module(sys.argv[1])
    wanted = [p for p in module.SAME if not sys.argv[2:] or any(word in p.__name__ for word in sys.argv[2:])]
    dist.init_process_group("ddp")
    ours, gloo = dist.group.WORLD, dist.new_group(backend="gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    failed = 0
    # With TORCH_DISTRIBUTED_DEBUG=DETAIL, PyTorch 2.15 crashes in DDP over its own Gloo (Logger::set_env_variables), and
    # 2.4 finds sequence numbers of it that do not agree.
    detail = "DETAIL" in os.environ.get("TORCH_DISTRIBUTED_DEBUG", "")
    compares = not detail or (sys.argv[1] != "training" and VERSION >= (2, 13))

    def report(program, right, detail):
        nonlocal failed
        if not right:
            failed += 1
            print(f"rank {rank}: FAILED {program.__name__}: {detail}", flush=True)

    for program in wanted:
        mine = outcome(program, ours)
        theirs = outcome(program, gloo) if compares else mine
        if VERSION < (2, 13) and ("does not support" in text(theirs) or "Cannot use" in text(theirs)):
            continue  # the Gloo of that PyTorch lacks it
        refused = "refused" in program.__name__
        if isinstance(theirs, Exception) and getattr(program, "may_do_more", False):
            theirs, refused = mine, isinstance(mine, Exception)
        right = equal(mine, theirs) and isinstance(mine, Exception) == refused
        report(program, right, f"ddp gives {text(mine)}, gloo {text(theirs)}")
        if isinstance(mine, Exception) and not refused:
            traceback.print_exception(type(mine), mine, mine.__traceback__)
        if os.environ.get("SHOW") and rank == 0:
            print(f"{program.__name__}: {text(mine)[:160]} | {text(theirs)[:160]}", flush=True)
    for program, expected in getattr(module, "MORE", []):
        if not sys.argv[2:]:
            mine, right = outcome(program, ours), expected(size, rank)
            report(program, equal(mine, right), f"ddp gives {text(mine)}, right is {text(right)}")
    print(f"rank {rank}: {len(wanted)} programs, {failed} failed", flush=True)
    dist.destroy_process_group()
    sys.exit(1 if failed else 0)


main()
