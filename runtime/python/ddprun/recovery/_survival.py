# SPDX-License-Identifier: BSD-3-Clause
"""How this process stays in its job when others fail: what ddprun says of rounds, by libddp's ddp_stay() and others."""
import ctypes
import os
from ctypes import c_char, c_int32, c_size_t
from typing import Iterable, Optional

from ddprun.torch._libddp import check, libddp

# Variables of the process, and the members of a round of which they are. Workers of one role have their places in the
# job as places in the role, too.
_VARIABLES = {
    "RANK": "rank",
    "WORLD_SIZE": "world_size",
    "LOCAL_WORLD_SIZE": "local_world_size",
    "GROUP_RANK": "node_rank",
    "GROUP_WORLD_SIZE": "node_count",
    "TORCHELASTIC_RESTART_COUNT": "restart_count",
    "MASTER_PORT": "master_port",
    "DDPRUN_STORE_PORT": "master_port",
}


class Round(ctypes.Structure):
    """ddp_round: the place of a process in a round of its job."""

    _fields_ = [
        ("size", c_size_t),
        ("round", c_int32),
        ("rank", c_int32),
        ("world_size", c_int32),
        ("local_rank", c_int32),
        ("local_world_size", c_int32),
        ("node_rank", c_int32),
        ("node_count", c_int32),
        ("restart_count", c_int32),
        ("master_port", c_int32),
        ("master_addr", c_char * 260),
    ]


def stay(stays: bool) -> bool:
    """Says whether this process stays when others fail. Returns whether ddprun will keep it then."""
    if "DDPRUN_AGENT_SOCKET" not in os.environ:
        return False
    will = c_int32()
    check(libddp.ddp_stay(1 if stays else 0, ctypes.byref(will)))
    return will.value != 0


def is_round_over(seconds: Optional[float]) -> bool:
    """Returns whether ddprun has ended the round of this process; waits for that, at most for so long. None: for as long
    as ddprun may need to notice that a node is lost."""
    is_over = c_int32()
    check(libddp.ddp_round_await_end(-1 if seconds is None else int(seconds * 1000), ctypes.byref(is_over)))
    return is_over.value != 0


def await_next_round(why: str) -> Round:
    """Waits until the next round begins, and gives this process's variables the values that they have there."""
    found = Round(ctypes.sizeof(Round))
    check(libddp.ddp_round_await_next(why.encode(errors="replace"), ctypes.byref(found)))
    has_one_role = os.environ.get("ROLE_WORLD_SIZE") == os.environ.get("WORLD_SIZE")
    for variable, member in _VARIABLES.items():
        os.environ[variable] = str(getattr(found, member))
    os.environ["MASTER_ADDR"] = found.master_addr.decode()
    if has_one_role:
        os.environ["ROLE_RANK"], os.environ["ROLE_WORLD_SIZE"] = os.environ["RANK"], os.environ["WORLD_SIZE"]
    return found


def say_connections(inodes: Iterable[int], are_others: bool) -> bool:
    """Says which connections ddprun's agent ends when it ends the round: these, or all but these. Returns whether the
    system lets it do so."""
    ends_them = c_int32()
    listed = ",".join(map(str, sorted(inodes))).encode()
    check(libddp.ddp_round_connections(listed, 1 if are_others else 0, ctypes.byref(ends_them)))
    return ends_them.value != 0
