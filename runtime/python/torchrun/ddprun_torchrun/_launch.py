# SPDX-License-Identifier: BSD-3-Clause
"""The launch_agent() that stands in for torch.distributed.launcher.api's: ddprun does what torch's agent would.

What it returns and raises is what torch's own does: {rank: result} of this node, ChildFailedError with a ProcessFailure
for each rank, SignalException. Where ddprun cannot do what is asked for, torch's own runs, after a line that says why.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import signal
import sys
import tempfile
import types
from typing import Any, Callable, Dict, List, Optional, Sequence

from ddprun_torchrun._options import NotHere, environment_of, options_of

# ddprun's exit codes for wrong usage, and for a program that cannot be executed or is not there. Without a report,
# nothing was started.
_REFUSED = (2, 126, 127)
_DEFAULT_SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"  # where LaunchConfig has none


def replace(api: types.ModuleType) -> None:
    """Replaces launch_agent() of torch.distributed.launcher.api. Its own is then `launch_agent.__wrapped__`."""
    own = api.launch_agent

    @functools.wraps(own)
    def launch_agent(config: Any, entrypoint: Any, args: List[Any], *more: Any, **options: Any) -> Dict[int, Any]:
        if os.environ.get("DDPRUN_DISABLE", "0") in ("", "0"):
            try:
                if any(value is not None for value in (*more, *options.values())):
                    raise NotHere("it brings a health check server")
                return _launch(api, config, entrypoint, args)
            except NotHere as why:
                say_torchs_own(str(why))
        return own(config, entrypoint, args, *more, **options)

    api.launch_agent = launch_agent  # type: ignore[attr-defined]


def say_torchs_own(why: str) -> None:
    """Prints the line that says why PyTorch's own launcher runs a job."""
    print(f"ddprun: PyTorch's own launcher runs this job, since {why}", file=sys.stderr, flush=True)


def _launch(api: types.ModuleType, config: Any, entrypoint: Any, args: Sequence[Any]) -> Dict[int, Any]:
    """Runs the job. Raises NotHere if nothing was started."""
    options = options_of(config)
    signals = _numbers_of(getattr(config, "signals_to_handle", _DEFAULT_SIGNALS))
    is_function = callable(entrypoint) and not _is_run_path(entrypoint)
    name = api._get_entrypoint_name(entrypoint, list(args))
    with tempfile.TemporaryDirectory(prefix="ddprun_") as folder:
        path = options["report_file"] = os.path.join(folder, "report.json")
        try:
            if is_function:
                return _call(entrypoint, args, config, options, signals)
            _run(entrypoint, args, name, options, signals)
        except _NoSuccess as error:
            if not os.path.exists(path):
                raise RuntimeError(str(error)) from None
        finally:
            _remove_empty_folders(options["log_dir"])
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
    if report["exit_code"] == 0 and not is_function:
        return dict.fromkeys(report["ranks"])
    raise _failure_of(report, name, entrypoint)


class _NoSuccess(Exception):
    """The job has not succeeded; the report says why. The text is for the case that there is none."""


def _run(entrypoint: Any, args: Sequence[Any], name: str, options: Dict[str, Any], signals: Sequence[int]) -> None:
    """Runs a command as the workers. Raises NotHere if nothing was started, else _NoSuccess."""
    environment = environment_of(os.environ)
    command = _command_of(entrypoint, args, environment)
    config = _own(options)
    from ddprun._process import run

    shown = name if "--no-python" in command[:1] else ""  # ddprun would call the program of a script Python
    try:
        code = run([*config.arguments(), *command], environment, shown, signals).exit_code
    except OSError as error:
        raise NotHere(f"{error.filename} cannot be started: {error}") from error
    if code in _REFUSED and not os.path.exists(options["report_file"]):
        raise NotHere("ddprun refuses it, as it said above")
    if code != 0:
        raise _NoSuccess(f"ddprun ended with exit code {code}; what it said on stderr has the reason")


def _own(options: Dict[str, Any]) -> Any:
    """Returns ddprun's LaunchConfig. Raises NotHere if it is not installed, or damaged, or too old."""
    try:
        import ddprun

        ddprun.find_binary()
        return ddprun.LaunchConfig(**options)
    except Exception as error:
        raise NotHere(f"ddprun cannot be used ({error}); pip install ddprun") from error


def _call(
    function: Callable[..., Any], args: Sequence[Any], config: Any, options: Dict[str, Any], signals: Sequence[int]
) -> Dict[int, Any]:
    """Calls a function in the workers and returns its results. Raises NotHere if nothing was started, else _NoSuccess,
    or SignalException once the job was ended for it."""
    if config.start_method == "fork":
        raise NotHere("its start_method is fork, so that the function may need what this process has in memory")
    own = _own(options)
    import ddprun
    from ddprun._process import handling

    has_come: List[int] = []

    def end_job(number: int, _frame: Optional[types.FrameType]) -> None:
        has_come.append(number)
        # The second one kills the workers at once, as launch() does when Ctrl-C is pressed again.
        raise _signal_exception(number) if len(has_come) == 1 else KeyboardInterrupt

    try:
        with handling(signals, end_job):
            return ddprun.launch(function, args, config=own)
    except TypeError as error:
        raise NotHere(f"the function cannot be sent to other processes: {error}") from error
    except ddprun.LaunchError as error:
        if error.exit_code in _REFUSED and not os.path.exists(options["report_file"]):
            raise NotHere(f"ddprun refuses it: {error}") from error
        raise _NoSuccess(str(error)) from error


def _command_of(entrypoint: Any, args: Sequence[Any], environment: Dict[str, str]) -> List[str]:
    """Returns the end of ddprun's command line, from the options that say what kind of program it is.

    A Python script is given as such, not as an argument of Python, so that reports have its name. Then ddprun finds the
    Python in `environment`, where this function puts it.
    """
    if not entrypoint or not all(isinstance(word, str) for word in args):
        raise NotHere("its command is not one of words")
    if _is_run_path(entrypoint):
        environment["PYTHON_EXEC"] = sys.executable
        return ["--run-path", "--", *args]
    if entrypoint == os.environ.get("PYTHON_EXEC", sys.executable) and list(args[:1]) == ["-u"]:
        script = list(args[1:])
        environment["PYTHON_EXEC"] = entrypoint
        if script[:1] == ["-m"]:
            return ["-m", "--", *script[1:]]
        if script and script[0].endswith(".py") and os.path.isfile(script[0]):
            return ["--", *script]
    return ["--no-python", "--", entrypoint, *args]


def _is_run_path(entrypoint: Any) -> bool:
    """Returns whether this is torch.distributed.run's own function for --run-path; its module may be __main__."""
    code = getattr(entrypoint, "__code__", None)
    return code is not None and code.co_name == "run_script_path" and code.co_filename.endswith("distributed/run.py")


def _numbers_of(names: str) -> List[int]:
    """Returns the signals that can be handled; ddprun complains about the others."""
    known = [getattr(signal, name.strip(), None) for name in names.split(",")]
    return [n for n in known if isinstance(n, signal.Signals) and n not in (signal.SIGKILL, signal.SIGSTOP)]


def _remove_empty_folders(log_dir: str) -> None:
    """Removes the folder that torch makes below TMPDIR for logs if no --log-dir is given, where it holds none."""
    if os.path.basename(log_dir).startswith("torchelastic_"):
        for folder, _, _ in os.walk(log_dir, topdown=False):
            with contextlib.suppress(OSError):  # it is not empty
                os.rmdir(folder)


def _failure_of(report: Dict[str, Any], name: str, entrypoint: Any) -> Exception:
    """Returns the exception that torch's own launch_agent() would raise."""
    failures = report["failures"]
    if failures and not failures[0]["stopped_by_ddprun"]:
        return _child_failed(failures, report["ranks"], name, entrypoint)
    if report["exit_code"] > 128:
        return _signal_exception(report["exit_code"] - 128)
    return RuntimeError(f"ddprun ended the job: {report['reason']}")


def _signal_exception(number: int) -> Exception:
    from torch.distributed.elastic.multiprocessing.api import SignalException

    return SignalException(f"Process {os.getpid()} got signal: {int(number)}", sigval=signal.Signals(number))


def _child_failed(failures: List[Dict[str, Any]], ranks: List[int], name: str, entrypoint: Any) -> Exception:
    """Returns torch's ChildFailedError: the cause, wherever it was, and the other failures of this node."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    cause = _process_failure(failures[0])
    by_rank = {failures[0]["rank"]: cause}
    for facts in failures[1:]:
        counts = facts["exit_code"] != 0 and not (callable(entrypoint) and facts["stopped_by_ddprun"])
        if facts["rank"] in ranks and counts:  # torch, too, names stopped commands, but not stopped functions
            other = by_rank[facts["rank"]] = _process_failure(facts)
            other.timestamp = max(other.timestamp, cause.timestamp)  # the earliest counts as the cause
    what = f"fn: {name}" if callable(entrypoint) else f"binary: {entrypoint}"
    logging.getLogger("torch.distributed.elastic.multiprocessing.api").error(
        "failed (exitcode: %s) local_rank: %s (pid: %s) of %s", cause.exitcode, cause.local_rank, cause.pid, what
    )
    return ChildFailedError(name=name, failures=by_rank)


def _process_failure(facts: Dict[str, Any]) -> Any:
    """Returns torch's ProcessFailure for one of the report's failures."""
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

    exit_code = -facts["signal"] if facts["signal"] else facts["exit_code"]
    try:
        failure = ProcessFailure(facts["local_rank"], facts["pid"], exit_code, facts["error_file"])
    except Exception:  # torch reads only what @record writes
        failure = ProcessFailure(facts["local_rank"], facts["pid"], exit_code, "")
    if failure.error_file == "<N/A>":
        failure.timestamp = facts["time_ms"] // 1000
        failure.message = facts["error"] or failure.message
    return failure
