# SPDX-License-Identifier: BSD-3-Clause
"""The program that ddprun runs for `launch`: `_worker.py PID CALL RESULTS` calls the function and writes its result.

PID is the process that called launch(), CALL and RESULTS are two of its open files, which have no name. It runs as a
script and not as a module, since how to find modules is among what it reads.

RESULTS begins with 8 bytes: where its last complete record ends. A worker adds a record under a lock: its bytes after
that end, then the new end. So what a worker that was killed had written in part is overwritten.

Each worker of a job imports this, so it imports little: pickle brings re, and typing as much as Python's own start.
"""
from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    del sys.path[0]  # this folder: its names are no top-level modules

import collections
import fcntl
import struct

try:
    import _pickle as pickle
except ImportError:  # not CPython
    import pickle  # type: ignore[no-redef]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAIN_OF_WORKER = "__mp_main__"  # the caller's __main__ in a worker, under the name that multiprocessing gives it
IMPORTING_MAIN = "_ddprun_importing_main"  # in __main__ of a worker: the script that it imports now

STARTED, RESULT = 0, 1
_PROTOCOL = 5  # the newest that Python 3.8 has
_END = struct.Struct("=q")
_HEADER = struct.Struct("=iiiq")  # kind, rank, local world size, bytes that follow


# What a worker has written: STARTED or RESULT, its rank, the number of workers of its node, and a pickle or nothing.
Record = collections.namedtuple("Record", ["kind", "rank", "local_world_size", "pickled"])


def read_records(fd: int) -> list[Record]:
    """Returns all records of the file."""
    records = []
    head = os.pread(fd, _END.size, 0)
    end = _END.unpack(head)[0] if head else _END.size
    position = _END.size
    while position < end:
        kind, rank, local_world_size, size = _HEADER.unpack(os.pread(fd, _HEADER.size, position))
        position += _HEADER.size
        records.append(Record(kind, rank, local_world_size, _read(fd, size, position)))
        position += size
    return records


def _read(fd: int, size: int, position: int) -> bytes:
    parts = []
    while size > 0:  # one call of the kernel moves 2 GiB at most
        part = os.pread(fd, size, position)
        if not part:
            raise EOFError("a result is not complete in its file")
        parts.append(part)
        position += len(part)
        size -= len(part)
    return b"".join(parts)


def add_record(fd: int, kind: int, pickled: bytes = b"") -> None:
    """Adds a record of this worker to the file."""
    fcntl.flock(fd, fcntl.LOCK_EX)
    head = os.pread(fd, _END.size, 0)
    position = _END.unpack(head)[0] if head else _END.size
    header = _HEADER.pack(kind, int(os.environ["RANK"]), int(os.environ["LOCAL_WORLD_SIZE"]), len(pickled))
    for data in (header, pickled):
        rest = memoryview(data)
        while rest:
            written = os.pwrite(fd, rest, position)
            position += written
            rest = rest[written:]
    os.pwrite(fd, _END.pack(position), 0)
    fcntl.flock(fd, fcntl.LOCK_UN)


def _open(pid: str, fd: str, flags: int) -> int:
    path = f"/proc/{pid}/fd/{fd}"
    try:
        return os.open(path, flags | os.O_CLOEXEC)
    except OSError as error:
        raise SystemExit(
            f"ddprun.launch: cannot open {path} of the process that called it: {error.strerror} (has it ended, or may "
            "this worker not look into it: another user, or a Python with file capabilities?)"
        ) from None


def _prepare(setup: dict[str, Any]) -> None:
    """Makes this process look like the caller's to the modules that it imports from here on."""
    sys.path[:] = setup["sys_path"]
    sys.argv[:] = setup["sys_argv"]
    if setup["python_exec"] is None:
        os.environ.pop("PYTHON_EXEC", None)
    else:
        os.environ["PYTHON_EXEC"] = setup["python_exec"]
    if setup["main"]:
        _import_main(setup["main"])


def _import_main(main: dict[str, str]) -> None:
    """Runs the caller's script under another name than __main__, as multiprocessing does, and puts it in its place."""
    import runpy
    import types

    globals()[IMPORTING_MAIN] = main.get("path") or main["module"]
    if "path" in main:
        content = runpy.run_path(main["path"], run_name=MAIN_OF_WORKER)
    else:
        content = runpy.run_module(main["module"], run_name=MAIN_OF_WORKER, alter_sys=True)
    module = types.ModuleType(MAIN_OF_WORKER)
    module.__dict__.update(content)
    sys.modules["__main__"] = sys.modules[MAIN_OF_WORKER] = module


def _cut(text: str, most: int = 100_000) -> str:
    """Returns the beginning and the end of a long text. ddprun reads 1 MiB of an error file, and shows 16 KiB."""
    return text if len(text) <= most else f"{text[: most // 2]}\n...\n{text[-most // 2 :]}"


def _write_error_file(message: str, trace: str) -> None:
    """Writes the error file, as PyTorch's @record does; not if the function has done so itself."""
    import json
    import time

    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not path or os.path.exists(path):
        return
    extra = {"py_callstack": _cut(trace), "timestamp": str(int(time.time()))}
    record = {"message": message[:10_000], "extraInfo": extra}
    try:
        with open(path, "w", encoding="ascii") as file:
            json.dump({"message": record}, file)
    except OSError as reason:
        print(f"cannot write the error file: {reason}", file=sys.stderr)


def _call(call: int) -> bytes:
    """Makes the call that is in the file, and returns its result, pickled."""
    with open(call, "rb") as file:
        setup = pickle.load(file)
        _prepare(setup)
        function, args, kwargs = pickle.load(file)
    try:
        result = function(*args, **kwargs)
    except SystemExit as end:
        if end.code:
            raise
        result = None
    try:
        return _pickled(result)
    except Exception as error:
        raise TypeError(f"the result, of type {type(result).__name__}, cannot be sent to the caller: {error}") from error


def _pickled(result: Any) -> bytes:
    """Returns the pickle of the result, by cloudpickle where pickle cannot make one and cloudpickle is installed."""
    try:
        return pickle.dumps(result, _PROTOCOL)
    except Exception as why:
        try:
            import cloudpickle  # type: ignore[import-not-found]
        except ImportError:
            raise why from None
    pickled: bytes = cloudpickle.dumps(result, _PROTOCOL)
    return pickled


def _main() -> None:
    pid, call, results = sys.argv[1:4]
    call_fd = _open(pid, call, os.O_RDONLY)
    results_fd = _open(pid, results, os.O_RDWR)
    add_record(results_fd, STARTED)
    try:
        result = _call(call_fd)
    except KeyboardInterrupt:
        # The user has stopped the job, and sees the caller's own traceback.
        import signal

        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except Exception as error:
        import traceback

        if error.__traceback__ and error.__traceback__.tb_next:
            error.__traceback__ = error.__traceback__.tb_next.tb_next  # without this file's own lines
        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        _write_error_file(f"{type(error).__name__}: {error}", trace)
        sys.stderr.write(trace)
        raise SystemExit(1) from None
    add_record(results_fd, RESULT, result)


if __name__ == "__main__":
    _main()
