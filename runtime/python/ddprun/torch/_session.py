# SPDX-License-Identifier: BSD-3-Clause
"""Forms libddp's groups over the store that torch.distributed gives.

The default group is a session of libddp. A group of some of its ranks is made by ddp_group_new() in that session, so
that errors name ranks of the job. Where the default group is another backend's, or the ranks are not in ascending
order, a group is a session of its own.

The ranks meet at the place behind torch's store, with connections of libddp's own: the TCPStore's server, or the
FileStore's file. A store of any other kind only passes on where rank 0 has started a TCPStore for this purpose.
"""
from __future__ import annotations

import ctypes
import os
import socket
import uuid
from datetime import timedelta
from typing import Any, List, Optional

from torch.distributed import DistBackendError, FileStore, PrefixStore, Store, TCPStore

from ddprun.torch._libddp import GroupOptions, SessionOptions, check, libddp

BACKEND: Optional[bytes] = None  # libddp's default backend


class _Session:
    """A session of libddp, which ends once all of its groups are closed."""

    def __init__(self, handle: int, size: int, kept: Any = None):
        self.handle = handle
        self.size = size
        self.users = 0
        self._kept = kept  # the store's server, if this process hosts it

    def release(self) -> None:
        self.users -= 1
        if self.users == 0:
            global _world
            if _world is self:
                _world = None
            libddp.ddp_session_destroy(self.handle)
            self._kept = None


_world: Optional[_Session] = None  # the session of torch's default group, if that is ours


def session_of_job() -> Optional[int]:
    """Returns the session of torch's default group, if that is ours and has all ranks of the job."""
    if _world is None or _world.size == 1 or os.environ.get("WORLD_SIZE") != str(_world.size):
        return None
    return _world.handle


class Group:
    """A group of libddp, until close()."""

    def __init__(self, handle: int, session: _Session):
        self.handle: Optional[int] = handle
        self._session = session
        session.users += 1

    def close(self) -> None:
        """Leaves the group: waits for operations in flight. Does nothing the second time."""
        handle, self.handle = self.handle, None
        if handle is None:
            return
        if handle != libddp.ddp_session_world(self._session.handle):
            libddp.ddp_group_destroy(handle)
        self._session.release()


def milliseconds(time: timedelta) -> int:
    """Returns a timeout as libddp takes it: 0 means the group's."""
    return max(1, int(time.total_seconds() * 1000))


def join(
    store: Store, rank: int, size: int, timeout: timedelta, group_id: str = "", global_ranks: Optional[List[int]] = None
) -> Group:
    """Joins the other ranks of a group, and returns once all are connected.

    group_id: torch's name of the group, unique while the default group lives. global_ranks: its ranks in the default
    group; empty for the default group itself; None if not known.
    """
    global _world
    if size > 1 and global_ranks and _world is not None and global_ranks == sorted(global_ranks):
        return _join_in_world(_world, global_ranks, group_id, timeout)
    is_default = global_ranks == []
    is_job = is_default and os.environ.get("WORLD_SIZE") == str(size)
    session = _start_session(store, rank, size, timeout, is_job)
    if is_default:
        _world = session
    return Group(libddp.ddp_session_world(session.handle), session)


def _join_in_world(world: _Session, ranks: List[int], group_id: str, timeout: timedelta) -> Group:
    options = GroupOptions(ctypes.sizeof(GroupOptions), timeout_ms=milliseconds(timeout))
    options.name = group_id.replace("/", "_").encode()
    handle = ctypes.c_void_p()
    members = (ctypes.c_int32 * len(ranks))(*ranks)
    check(libddp.ddp_group_new(world.handle, members, len(ranks), ctypes.byref(options), ctypes.byref(handle)))
    if handle.value is None:
        raise DistBackendError(f"the group {group_id} of ranks {ranks} does not include this process")
    return Group(handle.value, world)


def _start_session(store: Store, rank: int, size: int, timeout: timedelta, is_job: bool) -> _Session:
    options = SessionOptions(ctypes.sizeof(SessionOptions), backend=BACKEND, rank=rank, world_size=size)
    options.init_timeout_ms = options.timeout_ms = milliseconds(timeout)
    handle = ctypes.c_void_p()
    if size == 1:
        check(libddp.ddp_session_init(ctypes.byref(options), ctypes.byref(handle)))
        return _Session(handle.value or 0, size)
    # A store may be used again after destroy_process_group(), so each session has a name of its own.
    time = store.add(f"ddprun/joined/{rank}", 1)
    base, server = _place(store, rank, time)
    if rank == 0:
        store.set(f"ddprun/session/{time}", uuid.uuid4().hex)
    options.name = store.get(f"ddprun/session/{time}")
    place = _open(base, milliseconds(timeout))
    # A launcher's reports name ranks of the job. libddp heeds them where the store is the launcher's, without a prefix.
    prefixed = None if is_job else _prefixed(place)
    try:
        options.store = prefixed or place
        check(libddp.ddp_session_init(ctypes.byref(options), ctypes.byref(handle)))
    finally:
        libddp.ddp_store_destroy(prefixed)
        libddp.ddp_store_destroy(place)
    return _Session(handle.value or 0, size, server)


def _place(store: Store, rank: int, time: int) -> "tuple[Store, Optional[Store]]":
    """Returns a store that libddp can open too, and the server that this process hosts for it, if it does."""
    base = store
    while isinstance(base, PrefixStore):
        base = base.underlying_store
    if isinstance(base, (TCPStore, FileStore)):
        return base, None
    key = f"ddprun/place/{time}"
    if rank == 0:
        host = _own_host()
        server = TCPStore(host, 0, None, True, wait_for_workers=False)
        store.set(key, f"{host} {server.port}")
        return server, server
    host, port = store.get(key).decode().split()
    return TCPStore(host, int(port), None, False), None


def _own_host() -> str:
    """Returns the name at which other processes reach this host: its own, if that has an address."""
    host = socket.gethostname()
    try:
        socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:
        return "127.0.0.1"
    return host


def _open(base: Store, timeout_ms: int) -> int:
    """Returns libddp's own connection to the place of a store of torch's."""
    handle = ctypes.c_void_p()
    if isinstance(base, TCPStore):
        check(libddp.ddp_store_create_tcp(base.host.encode(), base.port, timeout_ms, 0, ctypes.byref(handle)))
    else:
        check(libddp.ddp_store_create_file(base.path.encode(), -1, timeout_ms, ctypes.byref(handle)))
    return handle.value or 0


def _prefixed(base: int) -> Optional[int]:
    handle = ctypes.c_void_p()
    check(libddp.ddp_store_create_prefix(b"ddprun", base, ctypes.byref(handle)))
    return handle.value
