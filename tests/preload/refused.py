# SPDX-License-Identifier: BSD-3-Clause
"""Where workers cannot be forked safely, ddprun says why in one line, and the job runs without
--preload."""
import os
import re
import subprocess

from launch import PRELOADED
from promises import Skip, promise

# Sources of modules that are unsafe to preload, and the reason that ddprun gives.
UNSAFE = {
    "import threading, time; threading.Thread(target=time.sleep, args=(100,), daemon=True, name='mine').start()":
        "importing unsafe started a thread: mine",
    "import _thread, time; [_thread.start_new_thread(time.sleep, (100,)) for _ in 'ab']":
        "importing unsafe started 2 threads: one without a name, one without a name",
    "import socket; kept = socket.socket()": "importing unsafe opened a socket",
    "import os; kept = os.pipe()": "importing unsafe opened a pipe",
    "kept = open(__file__)": "importing unsafe opened {module}",
    "import select; kept = select.epoll()": "importing unsafe opened anon_inode:[eventpoll]",
    "import subprocess; kept = subprocess.Popen(['sleep', '100'])": "importing unsafe started a process",
    "import subprocess; subprocess.run(['sh', '-c', 'setsid sleep 100 & true'])": "importing unsafe started a process",
    "import os, time\nif os.fork() == 0: time.sleep(100)": "importing unsafe started a process",
    "import os; os.fork()": "importing unsafe started a process",
    "import os; os.chdir('/')": "importing unsafe changed the working directory",
    "import os; os.umask(0o123)": "importing unsafe changed the umask",
    "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])":
        "importing unsafe changed the blocked signals",
    "import sys; sys.argv.pop()": "importing unsafe changed sys.argv",
    "raise ValueError('one\\ntwo')": "importing unsafe failed: ValueError: one two",
    "import is_not_there": "importing unsafe failed: ModuleNotFoundError: No module named 'is_not_there'",
    "def f(:": r"importing unsafe failed: SyntaxError: invalid syntax.*",
    "import sys; sys.exit(3)": "importing unsafe failed: SystemExit: 3",
    "raise KeyboardInterrupt": "importing unsafe failed: KeyboardInterrupt: ",
    "import os; os._exit(3)": "it exited with code 3 during the import",
    "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)": "it was killed by SIGSEGV during the import",
    "import os; os.closerange(3, 100)": "it left ddprun and did not end within 1 s",
    "import os; os.execlp('sleep', 'sleep', '100')": "it left ddprun and did not end within 1 s",
    "import sys; print('x' * 100000); raise ImportError": "importing unsafe failed: ImportError: ",
}
PROGRAM = "import gc, os\nprint('rank', os.environ['RANK'], getattr(gc, 'get_freeze_count', int)())\n"


def check_fell_back(job, preload, why):
    """Checks that the reason was given once, and that each rank ran the program once, in a
    process that is not forked."""
    said = [line for line in job.err().splitlines() if "started without it" in line]
    assert len(said) == 1, job.said()
    assert re.search(f"warning: --preload {preload}: {why}; workers are started without it$", said[0]), job.said()
    assert sorted(job.out().splitlines()) == ["rank 0 0", "rank 1 0"], job.said()


@promise("a module that does not survive a fork is refused in one line that says why, and the job runs")
def _(launch):
    program = launch.write("program.py", PROGRAM)
    for number, (text, why) in enumerate(UNSAFE.items()):
        module = launch.write(f"{number}/unsafe.py", text + "\n")
        job = launch.run("--nproc-per-node=2", program, preload="unsafe",
                         environment={"PYTHONPATH": os.path.dirname(module)})
        pattern = why if why.endswith(".*") else re.escape(why.format(module=module))
        check_fell_back(job, "unsafe", pattern)
        launch.check_nothing_left()


@promise("a module that initialises CUDA is refused, one that only opens it is not")
def _(launch):
    fake = os.environ.get("DDPRUN_TEST_FAKE_CUDA")
    if not fake:
        raise Skip("DDPRUN_TEST_FAKE_CUDA does not name a folder with a libcuda.so.1")
    program = launch.write("program.py", PROGRAM)
    environment = {"LD_LIBRARY_PATH": fake, "PYTHONPATH": launch.folder}
    launch.write("begins.py", "import ctypes\nassert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0\n")
    launch.write("opens.py", "import ctypes\nkept = ctypes.CDLL('libcuda.so.1')\n")
    job = launch.run("--nproc-per-node=2", program, preload="begins", environment=environment)
    check_fell_back(job, "begins", "importing begins initialised CUDA")
    launch.preloaded("--nproc-per-node=2", program, preload="opens", environment=environment)


@promise("side effects of a preloaded module are the same as if the program had imported it")
def _(launch):
    launch.write("changes.py", """
import os, signal, sys, warnings
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
os.environ["SET"] = "by import"
os.environ["CHANGED"] = "by import"
os.environ.pop("GONE", None)
os.environ.setdefault("OMP_NUM_THREADS", "7")
os.environ.setdefault("DEFAULT", "by import")
sys.path.append("/added")
sys.setrecursionlimit(1234)
warnings.simplefilter("error")
NULL = open(os.devnull)  # workers may share it
""")
    program = launch.write("program.py", """
import changes, os, signal, sys, warnings
print({name: os.environ.get(name) for name in ("SET", "CHANGED", "GONE", "RANK", "OMP_NUM_THREADS", "DEFAULT")})
print(os.popen("echo $SET $CHANGED $GONE $RANK $DEFAULT").read())
print(signal.getsignal(signal.SIGUSR1), sys.path, sys.getrecursionlimit(), warnings.filters[0],
      changes.NULL.read() == "")
""")
    own = {"CHANGED": "before", "GONE": "before", "PYTHONPATH": launch.folder}
    said = []
    for preload in None, "changes":
        run = launch.preloaded if preload else launch.run
        job = run("--nproc-per-node=2", "--tee=1", program, preload=preload, environment=own)
        said.append(sorted(job.out().splitlines()))
    assert said[0] == said[1] and "by import" in str(said), said


@promise("a Python that does not read PYTHONPATH is reported, and the job runs")
def _(launch):
    program = launch.write("program.py", PROGRAM)
    quoted = f"'{launch.python.path}'"
    isolated = "this Python does not import sitecustomize from where PYTHONPATH says (-I, -E or -S, a wrapper, or one " \
        "older than 3)"
    for command in (f'exec {quoted} -I "$@"', f'exec {quoted} -E "$@"', f'exec {quoted} -S "$@"',
                    f'{quoted} -I "$@"', f'unset PYTHONPATH; exec {quoted} "$@"',
                    f'exec env -i RANK="$RANK" {quoted} "$@"'):
        python = launch.write("python", f"#!/bin/sh\n{command}\n", 0o755)
        job = launch.run("--nproc-per-node=2", program, environment={"PYTHON_EXEC": python})
        check_fell_back(job, PRELOADED, re.escape(isolated))


@promise("an interpreter behind a wrapper script or with options of its own is preloaded")
def _(launch):
    program = launch.write("program.py", "import gc, os, sys\nprint(gc.get_freeze_count() > 0, sys.flags.optimize, "
                                         "os.getppid() == int(os.environ['MOTHER']) if 'MOTHER' in os.environ else '')\n")
    quoted = f"'{launch.python.path}'"
    for command, optimize in (f'exec {quoted} "$@"', 0), (f'exec {quoted} -O "$@"', 1), (f"exec nice {quoted} \"$@\"", 0):
        python = launch.write("python", f"#!/bin/sh\n{command}\n", 0o755)
        job = launch.preloaded("--nproc-per-node=2", program, environment={"PYTHON_EXEC": python})
        assert job.out() == f"True {optimize} \n" * 2, job.said()


@promise("an interpreter that cannot be executed is reported by the worker that cannot start")
def _(launch):
    program = launch.write("program.py", PROGRAM)
    python = launch.write("python", "#!/is/not/there\n", 0o755)
    said = []
    for preload in None, PRELOADED:
        job = launch.start(program, preload=preload, environment={"PYTHON_EXEC": python})
        said.append((job.wait(), [line.partition(": ")[2] for line in job.err().splitlines() if " error: " in line][:1]))
    assert said[0][0] == said[1][0] != 0, said
    assert "it cannot be executed: No such file or directory" in job.err(), job.said()


@promise("an old Python is reported, and the job runs")
def _(launch):
    olds = [path for path in os.environ.get("DDPRUN_TEST_OLD_PYTHONS", "").split(":") if path]
    if not olds:
        raise Skip("DDPRUN_TEST_OLD_PYTHONS names none")
    program = launch.write("program.py", "print('said')\n")
    for old in olds:
        job = launch.run("--nproc-per-node=2", program, environment={"PYTHON_EXEC": old})
        said = [line for line in job.err().splitlines() if "started without it" in line]
        assert len(said) == 1 and ("older than 3" in said[0] or "3.8 is the oldest that can" in said[0]), job.said()
        assert job.out().count("said") == 2, job.said()


@promise("an import that takes too long is ended after --preload-timeout, and the job runs")
def _(launch):
    launch.write("endless.py", "import time\nwhile True: time.sleep(1)\n")
    program = launch.write("program.py", PROGRAM)
    job = launch.run("--nproc-per-node=2", "--preload-timeout=1", program, preload="endless",
                     environment={"PYTHONPATH": launch.folder})
    check_fell_back(job, "endless", "it did not import endless within 1 s")


@promise("auto preloads the imports that are known to be safe, and reports if there are none")
def _(launch):
    launch.write("packages/numpy/__init__.py", "import os\nPARENT = os.getpid()\n")
    launch.write("packages/numpy/linalg.py", "")
    launch.write("packages/torch/__init__.py", "raise ImportError('not here')\n")
    program = launch.write("program.py", """
import json, gc, os
try:
    import torch
except ImportError:
    torch = None
from numpy import linalg as lin
import numpy
print("preloaded", numpy.PARENT != os.getpid(), gc.get_freeze_count() > 0)
""")
    for words in [program], ["-m", "program"]:
        job = launch.preloaded("--nproc-per-node=2", *words, preload="auto",
                               environment={"PYTHONPATH": launch.path("packages")})
        assert job.out() == "preloaded True True\n" * 2, job.said()
    job = launch.run("--nproc-per-node=2", launch.write("plain.py", "import json\n" + PROGRAM), preload="auto")
    check_fell_back(job, "auto", "none of the program's imports is known to be safe")
    program = launch.write("absent.py", "try:\n import torch\nexcept ImportError:\n pass\n" + PROGRAM)
    job = launch.run("--nproc-per-node=2", program, preload="auto",
                     environment={"PYTHONPATH": launch.path("packages")})
    check_fell_back(job, "auto", "none of the program's imports is there")


@promise("a program that is not run by Python is refused before anything starts")
def _(launch):
    done = subprocess.run([launch.ddprun, "--preload=json", "/bin/true"], stderr=subprocess.PIPE, timeout=60,
                          universal_newlines=True)
    assert done.returncode == 2 and "is not run by Python" in done.stderr, done
    for modules in "json,,random", ",", "json;os", "json random", "--x":
        done = subprocess.run([launch.ddprun, f"--preload={modules}", "program.py"], stderr=subprocess.PIPE, timeout=60,
                              universal_newlines=True)
        assert done.returncode == 2 and "--preload" in done.stderr, done
