# SPDX-License-Identifier: BSD-3-Clause
"""One run of ddprun below this process, which passes on the signals that it gets and waits for the end.

ddprun stays in this process's group, so that Ctrl-Z stops and `fg` continues both. It takes a Ctrl-C that it gets from
the terminal and from here for one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from types import FrameType
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence

from ddprun_torchrun._options import NotHere


def run(words: Sequence[str], environment: Mapping[str, str], signals: Sequence[int]) -> int:
    """Runs ddprun with this command line and returns its exit code, as subprocess has it: a signal is negative.

    `signals` that reach this process meanwhile are ddprun's. Raises NotHere if the program cannot be started. An
    exception that comes up here later ends the job first.
    """
    early: List[int] = []
    process: Optional[subprocess.Popen[bytes]] = None

    def pass_on(number: int, _frame: Optional[FrameType]) -> None:
        if process is None:
            early.append(number)
        else:
            process.send_signal(number)

    with handling(signals, pass_on):
        try:
            process = subprocess.Popen(words, env=environment)
        except OSError as error:
            raise NotHere(f"{words[0]} cannot be started: {error}") from error
        try:
            for number in early:
                process.send_signal(number)
            return process.wait()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()


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
