# SPDX-License-Identifier: BSD-3-Clause
"""Rows 31 to 39: how workers end, their files, signals."""
import glob
import json
import os
import re
import signal

from launcher import WORKERS
from rows import row


def attempt(launch, path):
    """Returns the content of a file of the only run in logs."""
    (found,) = glob.glob(launch.path("logs/*/attempt_0/" + path)) or [None]
    return found


def content(launch, path):
    return open(attempt(launch, path), "rb").read()


@row("31", "a worker's exit code 138 is reported, also if the other one succeeded before, and its stderr is in a file")
def _(launch):
    script = launch.script("ends.sh", """#!/bin/sh
echo "err of $RANK" >&2
if [ $RANK = 1 ]; then echo $$ > "$1/pid.new"; mv "$1/pid.new" "$1/pid"; exit 0; fi
until [ -e "$1/pid" ]; do sleep 0.02; done
while [ -e "/proc/$(cat "$1/pid")/exe" ]; do sleep 0.02; done
exit 138
""")
    job = launch.run("--nproc-per-node=2", "--redirects=0:2", f"--log-dir={launch.path('logs')}", "--no-python", script,
                     launch.folder, good=False)
    assert job.process.returncode == (1 if launch.launcher.always_exits_with_1 else 138), job.said()
    assert re.search(r"exitcode +: 138|exited with code 138", job.err()), job.said()
    assert not re.search(r"rank +: 1\b|rank 1", job.err()), job.said()
    assert content(launch, "0/stderr.log") == b"err of 0\n"
    assert not attempt(launch, "1/stderr.log") and "err of 1" in job.err(), job.said()


@row("32", "an exception of a recorded main is in error.json and in the summary, else exit code 1", torch=True)
def _(launch):
    script = os.path.join(WORKERS, "raises.py")
    job = launch.run(f"--log-dir={launch.path('logs')}", script, good=False)
    assert re.search(r"exitcode +: 1\b|exited with code 1\b", job.err()), job.said()
    assert not attempt(launch, "0/error.json")
    os.rename(launch.path("logs"), launch.path("earlier"))
    # With stderr in a file, only the launcher's own lines are on the console.
    job = launch.run(f"--log-dir={launch.path('logs')}", "--redirects=2", script, "record", good=False)
    text = "ValueError: rank 0 of role default has had enough"
    error = json.loads(content(launch, "0/error.json"))["message"]
    assert error["message"] == text, error
    assert "in main" in error["extraInfo"]["py_callstack"], error
    assert text in job.err() and "in main" in job.err(), job.said()


@row("33", "a program that is not there is an error at once that names it")
def _(launch):
    for arguments in ["--no-python", "./is_not_there"], ["is_not_there.py"]:
        job = launch.run("--nproc-per-node=2", *arguments, good=False, cwd=launch.folder, patience=20)
        assert "is_not_there" in job.err(), job.said()


@row("34", "--redirects and --tee name streams of single workers")
def _(launch):
    script = launch.script("say.sh", "#!/bin/sh\necho out of $RANK\necho err of $RANK >&2\n")
    job = launch.run("--nproc-per-node=2", "--redirects=0:2,1:0", "--tee=0:1,1:2", f"--log-dir={launch.path('logs')}",
                     "--no-python", script)
    assert sorted(job.out().splitlines()) == ["[default0]:out of 0", "out of 1"], job.said()
    assert "[default1]:err of 1" in job.err() and "err of 0" not in job.err(), job.said()
    files = {path: content(launch, path) for path in ("0/stdout.log", "0/stderr.log", "1/stderr.log")}
    assert files == {"0/stdout.log": b"out of 0\n", "0/stderr.log": b"err of 0\n", "1/stderr.log": b"err of 1\n"}, files
    assert not attempt(launch, "1/stdout.log")


@row("35", "workers that ignore SIGTERM are gone after the grace period, with their children")
def _(launch):
    job = launch.start("--nproc-per-node=2", "--shutdown-timeout=1", os.path.join(WORKERS, "stubborn.py"),
                       launch.path("ready"), patience=20)
    job.until(lambda: os.path.exists(launch.path("ready")) and len(open(launch.path("ready")).readlines()) == 4,
              "two workers, two children")
    job.signal(signal.SIGTERM)
    assert job.wait() != 0, job.said()
    left = job.left_over()
    assert not left, f"left over: {left}"


@row("36", "a worker killed by a signal is reported with the signal's name and its pid")
def _(launch):
    script = launch.script("hup.sh", f"#!/bin/sh\necho $$ > {launch.path('pid')}\nkill -HUP $$\n")
    job = launch.run("--no-python", script, good=False)
    pid = open(launch.path("pid")).read().strip()
    assert "SIGHUP" in job.err() and re.search(rf"\b{pid}\b", job.err()), job.said()


@row("37", "--signals-to-handle: listed signals reach the workers, names that are none only warn")
def _(launch):
    os.mkdir(launch.path("seen"))
    names = "SIGTERM,SIGNONE,SIGUSR1,SIGUSR2"

    def lines():
        return [open(path).read().split() for path in glob.glob(launch.path("seen/*"))]

    job = launch.start("--nproc-per-node=2", f"--signals-to-handle={names}", os.path.join(WORKERS, "signalled.py"),
                       launch.path("seen"), "SIGTERM", "SIGUSR1", "SIGUSR2")
    job.until(lambda: lines() == [[names]] * 2, "two workers that get the names")
    job.signal(signal.SIGUSR1)
    assert job.wait() != 0, job.said()
    assert lines() == [[names, "SIGUSR1"]] * 2, lines()
    assert "SIGNONE" in job.err(), job.said()


@row("38", "--redirects and --tee take 0 to 3 and maps of them, and nothing else")
def _(launch):
    for option in "--redirects", "--tee":
        for good in "0", "1", "2", "3", "0:1,1:2":
            launch.run("--nproc-per-node=2", f"{option}={good}", f"--log-dir={launch.path('logs')}", "--no-python",
                       "true")
        for bad in "4", "0:4", "a":
            launch.run("--nproc-per-node=2", f"{option}={bad}", "--no-python", "true", good=False)


@row("39", "teed lines have their rank's prefix, and bytes that are no text are whole in the file")
def _(launch):
    script = launch.script("bytes.sh", "#!/bin/sh\nprintf 'caf\\351 of %s\\n' $RANK\n")
    job = launch.run("--nproc-per-node=2", "--tee=1", f"--log-dir={launch.path('logs')}", "--no-python", script)
    # On the console torchrun writes U+FFFD in place of the byte; ddprun passes it on.
    assert sorted(job.out().splitlines()) == ["[default0]:caf\ufffd of 0", "[default1]:caf\ufffd of 1"], job.said()
    assert [content(launch, f"{rank}/stdout.log") for rank in range(2)] == [b"caf\xe9 of 0\n", b"caf\xe9 of 1\n"]
