# SPDX-License-Identifier: BSD-3-Clause
"""`launch`: calls a function in the workers of a job, and returns what it returned.

    caller ── ddprun ── worker 0: _worker.py ── function(*args)
       │                worker 1: _worker.py ── function(*args)
       └── two files without a name, which the workers open through /proc/CALLER/fd: the function; the results

The files have no name from the start, so nothing is left of them, however the processes end, and nobody but the user
of the caller can open them. No pickle crosses the network: each node's caller has the function of its own.
"""
import dataclasses
import importlib.util
import io
import os
import pickle
import sys
import tempfile
import types
from typing import Any, BinaryIO, Callable, Dict, List, Mapping, Optional, Sequence

from ddprun import _worker
from ddprun._config import LaunchConfig
from ddprun._process import run

# Variables that would change which program ddprun runs, or how.
_PROGRAM_VARIABLES = ("PET_MODULE", "PET_NO_PYTHON", "PET_RUN_PATH", "PET_LEGACY_LOCAL_RANK")


class LaunchError(RuntimeError):
    """A job did not succeed, and no worker is known to be the cause: wrong options, nodes that did not come, a signal.

    `exit_code` is ddprun's (`ddprun --help` has the list).
    """

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code

    def __reduce__(self) -> Any:
        return type(self), (*self.args, self.exit_code)


class WorkerError(LaunchError):
    """A worker failed: the first failure of the whole job, which may be of another node.

    rank, local_rank, node, pid: the worker. exit_code: as in a shell, 128 + signal if one killed it. signal: its
    number, or None. traceback: the traceback of the exception in the worker; if there was none, the last lines of the
    worker's stderr; may be empty. facts: all that ddprun knows of the failure, as in its --log-format json.
    """

    def __init__(self, facts: Dict[str, Any]):
        self.facts = facts
        self.rank: int = facts["rank"]
        self.local_rank: int = facts["local_rank"]
        self.node: str = facts["node"]
        self.pid: int = facts["pid"]
        self.signal: Optional[int] = facts.get("signal")
        self.traceback: str = facts.get("error") or "\n".join(facts.get("stderr_tail") or [])
        parts = [f"{facts['program']} failed: {facts['what']}"]
        parts += [facts[key] for key in ("meaning", "hint") if facts.get(key)]
        message = "; ".join(parts)
        if self.traceback:
            message += f"\n\nrank {self.rank} says:\n{self.traceback}"
        super().__init__(message, facts["exit_code"])

    def __reduce__(self) -> Any:
        return type(self), (self.facts,)


def launch(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Optional[Mapping[str, Any]] = None,
    *,
    config: Optional[LaunchConfig] = None,
    **options: Any,
) -> Dict[int, Any]:
    """Calls function(*args, **kwargs) in each worker of a job, and returns what it returned: {rank: result}.

    The options are the fields of LaunchConfig: `launch(train, nproc_per_node=8, max_restarts=3)`. They may also be
    given as `config`; those given by name count more. Workers are processes of this Python, started by ddprun; they
    find RANK, WORLD_SIZE and the rest in their environment, so torch.distributed.init_process_group() works as it is.

    In a job of several nodes each node calls launch() with the same function and options, and gets the results of its
    own workers. A node that was not needed (a spare) gets {}.

    The function, its arguments and the results are pickled. Functions of a notebook, lambdas and others that pickle
    refuses are left to cloudpickle where that is installed. Without it, the function must be one of a module, or of a
    script that calls launch() under `if __name__ == "__main__"`.

    Raises WorkerError if a worker fails, once all of them have ended; LaunchError if the job cannot be run or was
    ended by a signal; TypeError if something cannot be pickled. An exception in this process meanwhile, such as
    KeyboardInterrupt by Ctrl-C or a notebook's stop button, ends all workers (see `shutdown_timeout`).
    """
    main = sys.modules["__main__"]
    if getattr(main, _worker.IMPORTING_MAIN, False):
        raise RuntimeError(
            f"{main.__dict__[_worker.IMPORTING_MAIN]} calls ddprun.launch() while a worker imports it to find the "
            'function; put the call under `if __name__ == "__main__":`, or install cloudpickle'
        )
    if not sys.executable:
        raise RuntimeError("sys.executable is empty, so ddprun.launch() does not know which Python the workers need")
    config = dataclasses.replace(config or LaunchConfig(), **options)
    name = f"{getattr(function, '__name__', type(function).__name__)}()"
    with tempfile.TemporaryFile() as call, tempfile.TemporaryFile() as results:
        _write_call(call, function, tuple(args), dict(kwargs or {}))
        environment = {key: value for key, value in os.environ.items() if key not in _PROGRAM_VARIABLES}
        environment["PYTHON_EXEC"] = sys.executable
        place = [str(number) for number in (os.getpid(), call.fileno(), results.fileno())]
        ending = run([*config.arguments(), _worker.__file__, *place], environment, name)
        if ending.exit_code == 0:
            return _read_results(results, name)
    if "failure" in ending.record:
        raise WorkerError(ending.record["failure"])
    message = ending.record.get("message", "")
    if isinstance(message, dict):
        message = message.get("message", "")
    raise LaunchError(message or f"ddprun ended with code {ending.exit_code}; see what it printed", ending.exit_code)


for _class in (LaunchError, WorkerError):
    _class.__module__ = "ddprun"  # as users import them


class _Pickler(pickle.Pickler):
    """Pickles what workers can import. Notices, or refuses, what refers to functions or classes of __main__."""

    def __init__(self, file: BinaryIO, refuses_main: bool):
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.refuses_main = refuses_main
        self.refers_to_main = False

    def reducer_override(self, value: Any) -> Any:
        """Sees each object before it is pickled, and leaves it to pickle."""
        if isinstance(value, (type, types.FunctionType)) and value.__module__ in ("__main__", _worker.MAIN_OF_WORKER):
            self.refers_to_main = True
            if self.refuses_main:
                raise pickle.PicklingError(f"{value.__qualname__} is defined in {value.__module__}")
        return NotImplemented


def _write_call(file: BinaryIO, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
    """Writes what a worker needs to make the call: a pickle of plain values, and after it the pickle of the call."""
    has_cloudpickle = importlib.util.find_spec("cloudpickle") is not None
    call = (function, args, kwargs)
    main = None
    pickled = io.BytesIO()
    pickler = _Pickler(pickled, refuses_main=has_cloudpickle)
    try:
        try:
            pickler.dump(call)
        except Exception:
            if not has_cloudpickle:
                raise
            import cloudpickle  # type: ignore[import-not-found]

            pickled = io.BytesIO()
            cloudpickle.dump(call, pickled, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        advice = "" if has_cloudpickle else "; define it at the top of a module, or install cloudpickle"
        raise TypeError(f"{function!r} and its arguments cannot be sent to workers: {error}{advice}") from error
    if pickler.refers_to_main and not has_cloudpickle:
        main = _main_module()
        if main is None:
            raise TypeError(
                f"{function!r} or its arguments are defined in a notebook or at a prompt, where workers cannot import "
                "them; install cloudpickle (pip install cloudpickle), or move the definitions into a module"
            )
    setup = {"sys_path": sys.path, "sys_argv": sys.argv, "python_exec": os.environ.get("PYTHON_EXEC"), "main": main}
    pickle.dump(setup, file)
    file.write(pickled.getbuffer())
    file.flush()


def _main_module() -> Optional[Dict[str, str]]:
    """Returns where another process can import __main__ from; None if it is not in a file."""
    main = sys.modules["__main__"]
    if getattr(main, "__spec__", None) is not None:  # python -m
        return {"module": main.__spec__.name}  # type: ignore[union-attr]
    path = getattr(main, "__file__", None)
    return {"path": os.path.abspath(path)} if path and os.path.isfile(path) else None


def _read_results(file: BinaryIO, name: str) -> Dict[int, Any]:
    """Returns the results of the last round; those before it, which failed or had other nodes, do not count."""
    records = _worker.read_records(file.fileno())
    started = [record for record in records if record.kind == _worker.STARTED]
    ranks = [record.rank for record in started[-started[-1].local_world_size :]] if started else []
    results = {record.rank: record.pickled for record in records if record.kind == _worker.RESULT}
    missing = sorted(set(ranks) - set(results))
    if missing:
        which = ", ".join(map(str, missing))
        raise LaunchError(f"{name} has no result of rank {which}: it exited with code 0 before it had returned", 0)
    sys.modules.setdefault(_worker.MAIN_OF_WORKER, sys.modules["__main__"])
    return {rank: pickle.loads(results[rank]) for rank in sorted(ranks)}
