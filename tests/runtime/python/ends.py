# SPDX-License-Identifier: BSD-3-Clause
"""How a job ends with the process that called launch(), and what is left of it."""
import os
import re
import signal
import stat

from jobs import marked
from promises import promise

WAITING = """
import ddprun, os, signal, sys, time
def wait(deaf):
    if deaf:
        signal.signal(signal.SIGINT, lambda *_: print("asked to end", flush=True))
    print("worker", os.getpid(), flush=True)
    while True:
        time.sleep(1000)
"""
CALL = """
if __name__ == "__main__":
    try:
        ddprun.launch(wait, (%s,), nproc_per_node=2)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def started(callers, deaf=False):
    """Starts a caller, and returns it once its workers run."""
    job = callers.start(callers.write("waiting.py", WAITING + CALL % deaf))
    job.until(lambda: len(re.findall("^worker", job.out(), re.MULTILINE)) == 2, "two workers")
    return job


@promise("SIGINT to the caller, as of Ctrl-C or of a notebook's stop button, ends all, and launch raises KeyboardInterrupt")
def _(callers):
    job = started(callers)
    job.signal(signal.SIGINT)
    assert job.wait() == 0, job.said()
    assert job.out().splitlines()[-1] == "interrupted", job.said()
    assert not job.left_over(), job.left_over()
    assert "Traceback" not in job.err(), job.said()


@promise("Ctrl-C in a terminal, which signals the whole foreground group, counts once")
def _(callers):
    job = started(callers, deaf=True)
    os.killpg(job.pid, signal.SIGINT)
    job.until(lambda: job.out().count("asked to end") == 2, "SIGINT at both workers")
    assert job.running() and len(job.left_over()) > 2, job.said()
    job.signal(signal.SIGINT)
    assert job.wait() == 0, job.said()
    assert job.out().splitlines()[-1] == "interrupted" and job.out().count("asked to end") == 2, job.said()


@promise("a caller that is killed takes its job with it, and nothing of it is left")
def _(callers):
    job = started(callers)
    job.signal(signal.SIGKILL)
    job.wait()  # check_nothing_left() waits for the others


@promise("an exception of a signal handler in the caller ends the job first")
def _(callers):
    said = callers.script("""
import signal
class Late(Exception): pass
def stop(*_): raise Late
def tell(caller):
    os.kill(caller, signal.SIGUSR1)
    signal.pause()
if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, stop)
    try:
        ddprun.launch(tell, (os.getpid(),))
    except Late:
        print("late")
""")
    assert said == "late\n", said
    assert not callers.jobs[-1].left_over()


@promise("what launch writes has no name, and its mode is 0600")
def _(callers):
    job = started(callers)
    files = []
    for fd in os.listdir(f"/proc/{job.pid}/fd"):
        status = os.stat(f"/proc/{job.pid}/fd/{fd}")
        if stat.S_ISREG(status.st_mode) and os.readlink(f"/proc/{job.pid}/fd/{fd}").startswith(callers.temporary):
            files.append((stat.S_IMODE(status.st_mode), status.st_nlink))
    assert files == [(0o600, 0)] * 2, files
    # ddprun's own folder, for error files, is for the user alone too.
    for name in os.listdir(callers.temporary):
        assert name.startswith("ddprun_") and stat.S_IMODE(os.stat(f"{callers.temporary}/{name}").st_mode) == 0o700, name
    job.signal(signal.SIGINT)
    assert job.wait() == 0, job.said()


@promise("ddprun ends with the process that DDPRUN_CALLER names, but only with that one, and keeps it from workers")
def _(callers):
    # A shell that starts ddprun and is killed.
    job = callers.start("-c", 'DDPRUN_CALLER="$$ " ddprun sh -c "env; echo up; exec sleep 1000" & wait', command=["sh"])
    job.wait_for("^up$")
    assert "DDPRUN_CALLER" not in job.out(), job.said()
    job.signal(signal.SIGKILL)
    job.wait()
    job.until(lambda: not marked(job.mark), "end of ddprun") if job.running() else None
    # A caller that is not there any more.
    late = callers.start("sh", "-c", "echo never", command=[callers.ddprun], environment={"DDPRUN_CALLER": "1 late"})
    assert late.wait() == -signal.SIGTERM and late.out() == "", late.said()
