# SPDX-License-Identifier: BSD-3-Clause
"""No job fails because its warm parent dies, stops or cannot start, and no process of it is left."""
import os
import re
import signal
import subprocess

from jobs import free_port, marked, until
from launch import check_preloaded, children_of, warm_parent_of
from promises import Skip, promise

WAITS = "import os, signal\nprint('at', os.getpid(), flush=True)\nsignal.pause()\n"
# Fails in the first round, once the file "go" exists.
ONCE = """
import gc, os, sys
print("round", os.environ["TORCHELASTIC_RESTART_COUNT"], gc.get_freeze_count() > 0, flush=True)
while not os.path.exists("go") and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    os.stat(".")
sys.exit(os.environ["TORCHELASTIC_RESTART_COUNT"] == "0")
"""


def importing(launch):
    """Writes a module whose import says so and does not end. Returns the options that preload it."""
    launch.write("endless.py", "import sys, time\nprint('importing', file=sys.stderr, flush=True)\nwhile True: time.sleep(1)\n")
    return {"preload": "endless", "environment": {"PYTHONPATH": launch.folder}}


def started_importing(launch, *arguments):
    job = launch.start("--nproc-per-node=2", *arguments, launch.write("program.py", "print('ran')\n"), **importing(launch))
    job.until(lambda: re.search("^importing$", job.err(), re.MULTILINE), "the import")
    return job


def started(launch, workers=2, **options):
    job = launch.start(f"--nproc-per-node={workers}", launch.write("waits.py", WAITS), **options)
    job.until(lambda: job.out().count("at ") == workers, "the workers")
    return job


def state_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


@promise("a parent that is killed during the import is reported, and the job runs")
def _(launch):
    job = started_importing(launch)
    os.kill(warm_parent_of(job), signal.SIGKILL)
    assert job.wait() == 0 and job.out() == "ran\n" * 2, job.said()
    assert "--preload endless: it was killed by SIGKILL during the import; workers are started" in job.err(), job.said()


@promise("a parent that is killed later does no harm to the workers, and a restart does without it")
def _(launch):
    job = launch.start("--nproc-per-node=2", "--max-restarts=1", launch.write("once.py", ONCE))
    job.until(lambda: job.out().count("round 0 True") == 2, "two workers")
    os.kill(warm_parent_of(job), signal.SIGKILL)
    job.until(lambda: "it was killed by SIGKILL; workers are started without it" in job.err(), "the news of it")
    launch.write("go", "")
    assert job.wait() == 0 and job.out().count("round 1 False") == 2, job.said()


@promise("a parent that does not fork in time is ended, and a restart does without it")
def _(launch):
    job = launch.start("--nproc-per-node=2", "--max-restarts=1", launch.write("once.py", ONCE))
    job.until(lambda: job.out().count("round 0 True") == 2, "two workers")
    os.kill(warm_parent_of(job), signal.SIGSTOP)
    launch.write("go", "")
    assert job.wait() == 0 and job.out().count("round 1 False") == 2, job.said()
    assert "it did not fork the workers within 10 s; workers are started without it" in job.err(), job.said()


@promise("nothing is left when guardian, keeper or agent is killed, during the import and after")
def _(launch):
    for start in started_importing, started:
        for generation in range(3):
            job = start(launch)
            victim = job.pid
            for _ in range(generation):
                (victim,) = children_of(victim)
            os.kill(victim, signal.SIGKILL)
            job.wait()
            until(lambda: not job.left_over(), f"the end of all below number {generation}, which was killed")


@promise("a signal during the import ends the job at once, with its code")
def _(launch):
    for number, code in (signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129):
        job = started_importing(launch)
        job.signal(number)
        assert job.wait() == code and job.out() == "", job.said()
        until(lambda: not job.left_over(), "the end of all")


@promise("a suspended job stops with its parent, and both continue")
def _(launch):
    job = started(launch, workers=1)
    parent, worker = warm_parent_of(job), int(job.out().split()[1])
    job.signal(signal.SIGTSTP)
    until(lambda: state_of(worker) == "T" and state_of(parent) == "T", "the stop of both")
    job.signal(signal.SIGCONT)
    until(lambda: state_of(worker) == "S" and state_of(parent) == "S", "both to go on")
    job.signal(signal.SIGTERM)
    assert job.wait() == 143, job.said()


@promise("processes that a dead worker leaves behind are killed while the others live, with control groups and without")
def _(launch):
    program = launch.write("leaves.py", """
import os, signal, subprocess, sys
if os.environ["RANK"] == "0":
    forked, executed = os.pipe(), subprocess.Popen(["setsid", "sleep", "1000"])
    pid = os.fork()
    if pid == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(forked[1], b"%d" % os.getpid())
            signal.pause()
        os._exit(0)
    os.waitpid(pid, 0)
    print("left", os.read(forked[0], 100).decode(), executed.pid, flush=True)
    os._exit(0)
while not os.path.exists("go"):
    os.stat(".")
""")
    for way in "off", "freeze", "on":
        job = launch.start("--nproc-per-node=2", program, environment={"DDPRUN_CGROUP": way})
        left = set(map(int, job.wait_for(r"^left (\d+) (\d+)$").groups()))
        job.until(lambda: not left & set(marked(job.mark)), f"the end of {left}")
        assert warm_parent_of(job), job.said()
        launch.write("go", "")
        assert job.wait() == 0, job.said()
        os.remove(launch.path("go"))


@promise("20 restarts use the same parent, which has no more descriptors at the end and no child")
def _(launch):
    program = launch.write("often.py", """
import os, sys
def field(pid, number):
    with open("/proc/%s/stat" % pid) as file:
        return file.read().rpartition(")")[2].split()[number]
def is_parent(pid):
    try:
        with open("/proc/%s/comm" % pid) as file:
            return file.read() == "ddprun warm\\n" and int(field(pid, 1)) == os.getppid()
    except OSError:
        return False
# A forked worker has the parent's name until it renames itself: the parent is the oldest process.
parent = min(filter(is_parent, filter(str.isdigit, os.listdir("/proc"))), key=lambda pid: int(field(pid, 19)))
if os.environ["RANK"] == "0":
    sys.stdout.write("%s %d\\n" % (parent, len(os.listdir("/proc/%s/fd" % parent))))
sys.exit(int(os.environ["TORCHELASTIC_RESTART_COUNT"] != "20"))
""")
    job = launch.preloaded("--nproc-per-node=2", "--max-restarts=20", program)
    rows = job.out().splitlines()
    assert len(rows) > 10 and len(set(rows)) == 1, job.said()  # rank 0 may be stopped before it prints
    assert job.err().count(": started 2 workers") == 21, job.said()


@promise("if no process can be forked, the job fails as without the parent, or runs")
def _(launch):
    if os.getuid() != 0 or subprocess.run(["sh", "-c", "command -v setpriv prlimit"], stdout=subprocess.DEVNULL).returncode:
        raise Skip("it takes root, setpriv and prlimit")
    stranger = ["setpriv", "--reuid=54321", "--clear-groups"]
    if any(subprocess.run([*stranger, "test", "-x", program]).returncode for program in (launch.ddprun, launch.python.path)):
        raise Skip("ddprun or the interpreter is for root only")
    os.chmod(launch.folder, 0o755)
    program = launch.write("program.py", "print('ran')\n")
    for limit in range(4, 16):
        job = launch.start("--nproc-per-node=4", program, preload="json", cwd="/",
                           before=[*stranger, "prlimit", f"--nproc={limit}"])
        code = job.wait()
        assert (code == 0) == (job.out() == "ran\n" * 4), job.said()
        assert code == 0 or "Resource temporarily unavailable" in job.err(), job.said()
        assert "Traceback" not in job.err(), job.said()
        for why in re.findall("--preload json: (.*); workers are started", job.err()):
            assert re.fullmatch("fork( of worker . of 4)?: Resource temporarily unavailable", why), why
        until(lambda: not job.left_over(), "the end of all")


@promise("each node of a job has a parent of its own")
def _(launch):
    program = launch.write("program.py", "import gc, os\nprint(os.environ['RANK'], gc.get_freeze_count() > 0)\n")
    port = free_port()
    jobs = [launch.start("--nnodes=2", f"--node-rank={rank}", "--master-addr=127.0.0.1", f"--master-port={port}",
                         "--nproc-per-node=2", program) for rank in range(2)]
    for rank, job in enumerate(jobs):
        assert job.wait() == 0, job.said()
        check_preloaded(job)
        assert sorted(job.out().splitlines()) == [f"{2 * rank} True", f"{2 * rank + 1} True"], job.said()


@promise("a node that joins gets a parent, and the others keep theirs")
def _(launch):
    program = launch.write("program.py", """
import gc, os, signal, time
world = os.environ["WORLD_SIZE"]
print("world", world, gc.get_freeze_count() > 0, flush=True)
if world == "1":
    signal.pause()
""")
    job = ("--nnodes=1:2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-id=preload",
           "--local-addr=127.0.0.1", "--rdzv-conf=last_call_timeout=1", "--nproc-per-node=1", program)
    first = launch.start(*job)
    first.wait_for("world 1 True")
    parent = warm_parent_of(first)
    second = launch.start(*job)
    second.wait_for("world 2 True")
    for node in first, second:
        assert node.wait() == 0, node.said()
        check_preloaded(node)
    assert parent and "world 2 True" in first.out(), first.said()
