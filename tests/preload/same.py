# SPDX-License-Identifier: BSD-3-Clause
"""A worker and its user observe the same process, whether it was started with exec or forked from a
warm parent."""
import json
import os
import re
import signal
import subprocess

from jobs import until
from launch import PRELOADED, WORKERS, agent_of, children_of, streams, warm_parent_of
from promises import Skip, promise

OBSERVE = os.path.join(WORKERS, "observe.py")
ENDS = {
    "pass": 0,
    "sys.exit()": 0,
    "sys.exit(3)": 3,
    "sys.exit('said at the end')": 1,
    "raise SystemExit(260)": 4,
    "raise ValueError('caf\\u00e9')": 1,
    "os._exit(9)": 9,
    "os.kill(os.getpid(), signal.SIGKILL)": 137,
    "os.kill(os.getpid(), signal.SIGTERM)": 143,
    "os.abort()": 134,
    "raise KeyboardInterrupt": 130,
    "os.kill(os.getpid(), signal.SIGSEGV)": 139,
    "import is_not_there": 1,
    "def f(: pass": 1,
}
# Variables that differ between two jobs, however their workers are started.
OF_THE_JOB = ("MASTER_PORT", "DDPRUN_STORE_PORT", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_RUN_ID",
              "DDPRUN_AGENT_SOCKET", "DDPRUN_INCARNATION", "DDPRUN_LIVENESS_WORD", "DDPRUN_TEST_MARK")


def observed(content):
    """Returns the output of observe.py without the parts that belong to the job and those that
    may differ."""
    if not content.startswith(b"{"):
        return content  # its stderr
    text = re.sub(r"(executed|forked)_\d+/\w+/attempt_0", "logs", content.decode())
    for name in OF_THE_JOB:
        text = re.sub(r"%s(=|': '|', b'|\": \")[^'\"]*" % name, name + r"\1..", text)
    seen = json.loads(text)
    seen.pop("may differ")
    seen["interpreter"].pop("modules")
    return seen


def may_differ(said):
    """Returns the part of each worker's output that may differ, by local rank."""
    return [json.loads(said[rank, "stdout"])["may differ"] for rank in range(len(said) // 2)]


@promise("interpreter, process, environment, descriptors and signals are the same")
def _(launch):
    program = launch.write("a folder/observe.py", open(OBSERVE).read())
    said = launch.both(program, "one", "two words", "", "$local_rank", "h\u00e9", workers=2, normal=observed)
    seen = json.loads(said[1, "stdout"])
    assert seen["interpreter"]["argv"] == [program, "one", "two words", "", "1", "h\u00e9"]
    assert seen["process"]["leads"] == [True, True] and seen["process"]["prctl"]["death signal"] == signal.SIGKILL, seen
    assert sorted(seen["process"]["descriptors"]) == ["0", "1", "2"] and len(seen["process"]["threads"]) == 1


@promise("only the hash seed, command line and environment in /proc, and objects kept from the collector differ")
def _(launch):
    forked = may_differ(launch.both(OBSERVE, "$local_rank", workers=2, normal=observed))
    assert forked[0]["hash"] == forked[1]["hash"]
    for rank, worker in enumerate(forked):
        # /proc shows the command line of local rank 0, and of the environment what the node's workers have in common
        # and the mark by which a worker's descendants are found.
        assert worker["command line"][0].split("\0")[1:] == ["-u", OBSERVE, "0", ""], worker["command line"]
        shown = dict(entry.split("=", 1) for entry in worker["environment at start"] if entry)
        assert "RANK" not in shown and len(shown["DDPRUN_INCARNATION"]) == 16, shown
        assert shown["DDPRUN_INCARNATION"] != "0" * 16
        if launch.python.version >= (3, 7):
            assert worker["frozen"] > 0
    marks = [next(entry for entry in worker["environment at start"] if entry.startswith("DDPRUN_INCARNATION="))
             for worker in forked]
    assert marks[0] != marks[1]


@promise("with a hash seed of the user's, hashes are the same")
def _(launch):
    launch.both(launch.write("hash.py", "print(hash('a'))"), environment={"PYTHONHASHSEED": "7"})


@promise("random numbers differ between workers and between rounds")
def _(launch):
    program = launch.write("chance.py", """
import os, random, sys, uuid, multiprocessing, tempfile
numpy = sys.modules.get("numpy")
names = next(tempfile._get_candidate_names())
print("seen", random.random(), random.SystemRandom().random(), uuid.uuid4(), os.urandom(8).hex(), uuid.uuid1(),
      multiprocessing.current_process().authkey.hex(), names, *([numpy.random.rand()] if numpy else []), flush=True)
sys.exit(0 if os.environ["TORCHELASTIC_RESTART_COUNT"] == "1" else 1)
""")
    modules = "random,uuid,tempfile,multiprocessing"
    if subprocess.run([launch.python.path, "-c", "import numpy"], stderr=subprocess.DEVNULL).returncode == 0:
        modules += ",numpy"
    job = launch.preloaded("--nproc-per-node=3", "--max-restarts=1", program, preload=modules)
    rows = [line.split()[1:] for line in job.out().splitlines() if line.startswith("seen ")]
    assert len(rows) >= 4, job.said()  # ddprun may have ended a worker because another failed first
    for column in zip(*rows):
        assert len(set(column)) == len(column), f"the same twice: {column}"


@promise("exit codes, deaths by signals and output at exit are the same")
def _(launch):
    for number, (end, code) in enumerate(ENDS.items()):
        program = launch.write(f"end_{number}.py", f"import os, signal, sys\nprint('begun')\n{end}\n")
        said = launch.both(program, code=code)
        if not end.startswith("def"):
            assert said[0, "stdout"] == b"begun\n", said


@promise("SIGTERM ends a worker without a handler, runs a handler, and is followed by SIGKILL after the grace period")
def _(launch):
    for preload in None, PRELOADED:
        for handler, code, left in (
                ("", 143, ""), ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))", 143, "left"),
                ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", 143, "")):
            program = launch.write("stop.py", f"""
import atexit, random, signal, sys
atexit.register(print, "left")
{handler}
print("begun", flush=True)
while True: signal.pause()
""")
            job = launch.start("--nproc-per-node=2", "--shutdown-timeout=1", program, preload=preload)
            job.until(lambda: job.out().count("begun") == 2, "two workers")
            job.signal(signal.SIGTERM)
            assert job.wait() == code, job.said()
            assert job.out().count("left") == (2 if left else 0), job.said()
            assert "SIGTERM" in job.err() or "signal" in job.err(), job.said()


@promise("Ctrl-C ends a worker as KeyboardInterrupt does")
def _(launch):
    program = launch.write("wait.py", "import signal\nprint('begun', flush=True)\nsignal.pause()\n")
    said = []
    for preload in None, PRELOADED:
        job = launch.start("--nproc-per-node=1", program, preload=preload)
        job.wait_for("begun")
        job.signal(signal.SIGINT)
        assert job.wait() == 130, job.said()
        traces = job.err()[job.err().index("Traceback"):].splitlines()
        traces = [line for line in traces if " ddprun " not in line]
        said.append((traces[0], traces[1].partition(", line")[0], traces[-1]))  # the signal may interrupt the program anywhere
    assert said[0] == said[1] and said[0][-1].startswith("KeyboardInterrupt"), said


@promise("output is the same in files, with prefixes, teed and on the console")
def _(launch):
    program = launch.write("say.py", """
import ctypes, os, sys
print("of", os.environ["RANK"])
print("without an end", end="", file=sys.stderr)
ctypes.CDLL(None).printf(b"of C, %d\\n", int(os.environ["RANK"]))
sys.stdout.buffer.write(b"\\xff\\n")
os.write(1, b"written\\n")
""")
    for options in [], ["--tee=3"], ["--redirects=1", "--tee=0:2"], ["--log-line-prefix-template=<${rank}> "]:
        said = []
        for preload in None, PRELOADED:
            job = launch.run("--nproc-per-node=2", f"--log-dir={launch.path('logs')}", *options, program, preload=preload)
            said.append((sorted(job.out_bytes().splitlines()),
                         sorted(line for line in job.err_bytes().splitlines() if b" ddprun info: " not in line)))
        assert said[0] == said[1], f"{options}: {said[0]}\n{said[1]}"
        assert any(b"of 1" in line for line in said[1][0]) == ("--redirects=1" not in options)


@promise("buffered output of Python and of C is written once, also by atexit functions")
def _(launch):
    loud = launch.write("modules/loud.py", """
import atexit, ctypes, os, sys
parent = os.getpid()
sys.stdout.write("while imported\\n")
ctypes.CDLL(None).printf(b"by C while imported\\n")
atexit.register(lambda: print("at exit" + " of the parent" * (os.getpid() == parent)))
""")
    program = launch.write("once.py", "import loud, ctypes\nctypes.CDLL(None).printf(b'by C\\n')\nprint('by Python', end='')\n")
    job = launch.preloaded("--nproc-per-node=2", "--log-dir", launch.path("logs"), "--redirects=1", program,
                           preload="loud", environment={"PYTHONPATH": os.path.dirname(loud)})
    for rank in range(2):
        content = streams(launch.path("logs"))[rank, "stdout"]
        assert sorted(content.splitlines()) == sorted([b"by Pythonat exit", b"by C"]), content
    # Output of modules while they are imported is the parent's, on ddprun's stderr.
    assert job.err().count("while imported\n") == 2 and job.err().count("by C while imported\n") == 1, job.said()


@promise("stdin is read by the worker that --stdin names")
def _(launch):
    program = launch.write("read.py", "import os, sys\nprint(os.environ['RANK'], repr(sys.stdin.read()))\n")
    for option, expected in ("--stdin=1", ["0 ''", "1 'for one\\n'"]), ("--stdin=none", ["0 ''", "1 ''"]):
        for preload in None, PRELOADED:
            words = [launch.ddprun, "--nproc-per-node=2", option, *([f"--preload={preload}"] if preload else []), program]
            done = subprocess.run(words, input="for one\n", stdout=subprocess.PIPE, universal_newlines=True,
                                  env={**os.environ, "PYTHON_EXEC": launch.python.path}, timeout=60)
            assert sorted(done.stdout.splitlines()) == expected, done


@promise("the user's environment variables for Python have the same effect")
def _(launch):
    launch.write("first/of_first.py", "")
    launch.write("second/of_second.py", "")
    first, second = launch.path("first"), launch.path("second")
    for environment in ({"PYTHONPATH": first}, {"PYTHONPATH": f"{first}:{second}"}, {"PYTHONPATH": ""},
                        {"PYTHONPATH": f":{first}"}, {"PYTHONPATH": f"{first}:"}, {"PYTHONPATH": "second:first"},
                        {"PYTHONWARNINGS": "error", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONIOENCODING": "latin-1"},
                        {"PYTHONFAULTHANDLER": "1"}, {"PYTHONOPTIMIZE": "2"}, {"PYTHONUTF8": "1"},
                        {"PYTHONNOUSERSITE": "1"}, {"PYTHONSAFEPATH": "1"}, {"PYTHONDEVMODE": "1"},
                        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}, {"LC_ALL": "C.UTF-8"}, {"TZ": "Asia/Kolkata"},
                        {"PYTHONPYCACHEPREFIX": launch.path("cache")}, {"PYTHONUNBUFFERED": ""}):
        launch.both(OBSERVE, environment=environment, normal=observed)


@promise("GPUs, threads and local ranks in the environment are the same")
def _(launch):
    for options, environment in (
            (["--gpus=4,6"], {}), (["--gpus=4,6", "--virtual-local-rank"], {}), ([], {"OMP_NUM_THREADS": "3"}),
            ([], {"CUDA_VISIBLE_DEVICES": "1,0"}), (["--legacy-local-rank"], {}), (["--role=trainer"], {})):
        launch.both(*options, OBSERVE, workers=2, environment=environment, normal=observed)


@promise("arguments and variables that are long, empty or not UTF-8 arrive as they are")
def _(launch):
    program = launch.write("words.py", """
import ctypes, os, sys
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
print(list(map(os.fsencode, sys.argv[1:])), os.environb[b"LONG"], os.environb[b"ODD"], os.environb[b"NONE"])
print(getenv(b"LONG") == os.environb[b"LONG"], getenv(b"ODD"), getenv(b"RANK"), getenv(b"PYTHONPATH"))
""")
    long, odd = "x" * 100_000, os.fsdecode(b"\xff\xfe =\n'\"")
    said = launch.both(program, long, odd, "", "--", "$local_rank/$local_rank", "\u00e4 \u6f22 \U0001f600", workers=2,
                       environment={"LONG": long, "ODD": odd, "NONE": ""})
    assert b"'1/1'" in said[1, "stdout"] and b"True" in said[1, "stdout"], said


@promise("limits, umask, working directory and ignored signals are those of ddprun's caller")
def _(launch):
    os.makedirs(launch.path("here"))
    before = ["sh", "-c", "umask 027; ulimit -Sn 333; ulimit -c 0; ulimit -s 7000; trap '' HUP USR2; nice -n 3 \"$0\" \"$@\""]
    said = launch.both(OBSERVE, before=before, cwd=launch.path("here"), normal=observed)
    seen = json.loads(said[0, "stdout"])["process"]
    assert seen["limits"]["RLIMIT_NOFILE"][0] == 333 and seen["status"]["Umask"] == "0027", seen
    assert seen["cwd"][0] == launch.path("here") and int(seen["status"]["SigIgn"], 16) & 1 << signal.SIGHUP - 1


@promise("the CPUs of a binding are the same")
def _(launch):
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise Skip("one CPU only")
    program = launch.write("cpus.py", "import os\nprint(sorted(os.sched_getaffinity(0)))\n")
    said = launch.both("--numa-binding=core-complex", program, workers=2)
    launch.both("--numa-binding=exclusive", program)
    launch.both(program, before=["taskset", "-c", str(cpus[1])])
    assert said[0, "stdout"], said


@promise("a worker's parent is the agent, with which it dies")
def _(launch):
    program = launch.write("wait.py", "import os, signal\nprint(os.getpid(), flush=True)\nsignal.pause()\n")
    job = launch.start("--nproc-per-node=3", program)
    job.until(lambda: job.out().count("\n") == 3, "three workers")
    workers, agent = set(map(int, job.out().split())), agent_of(job)
    assert set(children_of(agent)) == workers | {warm_parent_of(job)}, job.said()
    os.kill(agent, signal.SIGKILL)
    job.wait()
    until(lambda: not job.left_over(), "the end of all")


@promise("64 workers start and end")
def _(launch):
    program = launch.write("rank.py", "import os\nos.write(1, f'rank {os.environ[\"RANK\"]} {os.environ[\"LOCAL_RANK\"]}\\n'.encode())\n")
    job = launch.preloaded("--nproc-per-node=64", program)
    assert sorted(job.out().splitlines()) == sorted(f"rank {rank} {rank}" for rank in range(64)), job.said()
