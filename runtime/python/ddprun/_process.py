# SPDX-License-Identifier: BSD-3-Clause
"""One run of ddprun under this process: started, ended with it, and what it says of its failure.

    this process ── signals ──▶ ddprun ── signals ──▶ workers
                 ◀── pipe: the error file of ddprun, with the facts of the first failure

If this process dies, whatever kills it, the kernel sends ddprun SIGTERM (DDPRUN_CALLER).
"""
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from types import FrameType
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence

from ddprun._binary import find_binary


class Ending(NamedTuple):
    """How a run of ddprun ended."""

    exit_code: int  # as subprocess has it: a signal is negative
    record: Dict[str, Any]  # ddprun's error file (docs/internals/worker_contract.md); empty if it left none


def run(
    arguments: Sequence[str], environment: Mapping[str, str], name: str, signals: Optional[Sequence[int]] = None
) -> Ending:
    """Runs `ddprun ARGUMENTS` until it ends. Raises OSError if the program cannot be started.

    `name` stands for the program in ddprun's messages; empty: ddprun's own choice. If an exception comes up here
    meanwhile, such as KeyboardInterrupt, the job is ended first, and the exception goes on; a second KeyboardInterrupt
    kills the workers at once.

    Without `signals` ddprun has a session of its own, so that Ctrl-C in a terminal or a notebook reaches this process
    alone, which passes it on once. With `signals`, those that reach this process are passed on, and ddprun stays in its
    group, so that Ctrl-Z stops and `fg` continues both; ddprun takes a Ctrl-C that comes both ways for one.
    """
    process: "Optional[subprocess.Popen[bytes]]" = None
    early: List[int] = []

    def pass_on(number: int, _frame: Optional[FrameType]) -> None:
        if process is None:
            early.append(number)
        else:
            process.send_signal(number)

    read_end, write_end = os.pipe()
    with handling(signals or (), pass_on), open(read_end, "rb") as pipe:
        try:
            environment = {
                **environment,
                "DDPRUN_CALLER": f"{os.getpid()} {name}",
                "TORCHELASTIC_ERROR_FILE": f"/proc/self/fd/{write_end}",
            }
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()  # what was printed before comes before what workers print
            # No preexec_fn: it would make subprocess copy this process's memory tables, and is not safe among threads.
            process = subprocess.Popen(
                [find_binary(), *arguments], env=environment, pass_fds=[write_end], start_new_session=signals is None
            )
        finally:
            os.close(write_end)
        try:
            for number in early:
                process.send_signal(number)
            record = pipe.read()  # ends when ddprun does, and no process that it has started holds the other end
            process.wait()
        except BaseException as error:
            _end(process, signal.SIGINT if isinstance(error, KeyboardInterrupt) else signal.SIGTERM)
            raise
    try:
        return Ending(process.returncode, json.loads(record))
    except ValueError:  # there is none, or ddprun was killed while it wrote it
        return Ending(process.returncode, {})


@contextlib.contextmanager
def handling(signals: Sequence[int], handler: Callable[[int, Optional[FrameType]], None]) -> Iterator[None]:
    """Installs a handler meanwhile. Does nothing outside of the main thread, which alone may handle signals."""
    before: Dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in signals:
            # What the caller ignores stays ignored: `nohup torchrun ... &` must survive its terminal.
            if signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, earlier in before.items():
            # None stands for a handler that was not installed from Python; no function can put it back.
            signal.signal(number, signal.SIG_DFL if earlier is None else earlier)


def _end(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    """Sends the signal and waits for the end; does it again if the user is impatient."""
    while True:
        try:
            process.send_signal(number)
            process.wait()
            return
        except KeyboardInterrupt:
            number = signal.SIGINT
