# SPDX-License-Identifier: BSD-3-Clause
"""One run of ddprun under this process: started, ended with it, and what it says of its failure.

    this process ── SIGINT, SIGTERM ──▶ ddprun ── signals ──▶ workers
                 ◀── pipe: the error file of ddprun, with the facts of the first failure

ddprun has a session of its own, so that Ctrl-C in a terminal or a notebook reaches this process alone, which passes it
on once. If this process dies, whatever kills it, the kernel sends ddprun SIGTERM (DDPRUN_CALLER).
"""
import json
import os
import signal
import subprocess
import sys
from typing import Any, Dict, List, Mapping, NamedTuple

from ddprun._binary import find_binary


class Ending(NamedTuple):
    """How a run of ddprun ended."""

    exit_code: int  # as subprocess has it: a signal is negative
    record: Dict[str, Any]  # ddprun's error file (docs/internals/worker_contract.md); empty if it left none


def run(arguments: List[str], environment: Mapping[str, str], name: str) -> Ending:
    """Runs `ddprun ARGUMENTS` until it ends.

    `name` stands for the program in ddprun's messages; empty: ddprun's own choice. If an exception comes up here
    meanwhile, such as KeyboardInterrupt, the job is ended first, and the exception goes on; a second KeyboardInterrupt
    kills the workers at once.
    """
    read_end, write_end = os.pipe()
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
            [find_binary(), *arguments], env=environment, pass_fds=[write_end], start_new_session=True
        )
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    with open(read_end, "rb") as pipe:
        try:
            record = pipe.read()  # ends when ddprun does, and no process that it has started holds the other end
            process.wait()
        except BaseException as error:
            _end(process, signal.SIGINT if isinstance(error, KeyboardInterrupt) else signal.SIGTERM)
            raise
    try:
        return Ending(process.returncode, json.loads(record))
    except ValueError:  # there is none, or ddprun was killed while it wrote it
        return Ending(process.returncode, {})


def _end(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    """Sends the signal and waits for the end; does it again if the user is impatient."""
    while True:
        try:
            process.send_signal(number)
            process.wait()
            return
        except KeyboardInterrupt:
            number = signal.SIGINT


