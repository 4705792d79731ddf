# SPDX-License-Identifier: BSD-3-Clause
"""A program runs as Python would run it, whether its worker was started with exec or forked from a
warm parent."""
import json
import os
import subprocess
import zipfile

from launch import PRELOADED, streams
from promises import Skip, promise
from same import OBSERVE, observed

# Modules that warm_parent.py imports for itself.
OF_THE_PARENT = "array, ast, atexit, ctypes, gc, importlib.machinery, os, pkgutil, random, site, socket, struct, sys, time, traceback"


def observe_as(launch, *names):
    """Writes observe.py under each of these names."""
    for name in names:
        launch.write(name, open(OBSERVE).read())


def modules(said, rank=0):
    return set(json.loads(said[rank, "stdout"])["interpreter"]["modules"])


@promise("a script has its folder, name and arguments, through links, relative paths and from other folders too")
def _(launch):
    observe_as(launch, "here/script.py", "in a folder/another.py")
    os.symlink(launch.path("in a folder/another.py"), launch.path("here/link.py"))
    os.symlink(launch.path("in a folder"), launch.path("here/linked"))
    for script in ("script.py", "./script.py", "link.py", "linked/another.py", "../in a folder/another.py",
                   launch.path("here/script.py"), "../here/../here/script.py"):
        launch.both(script, "-x", "--", "y", cwd=launch.path("here"), normal=observed)


@promise("a module, a package, a folder, a zip file and compiled code run as without --preload")
def _(launch):
    observe_as(launch, "module.py", "package/__main__.py", "package/inner/deeper.py", "folder/__main__.py")
    launch.write("package/__init__.py", "said = 'once'\n")
    launch.write("package/inner/__init__.py", "")
    with zipfile.ZipFile(launch.path("archive.pyz"), "w") as archive:
        archive.writestr("__main__.py", open(OBSERVE).read())
        archive.writestr("beside.py", "")
    subprocess.run([launch.python.path, "-c", "import py_compile; py_compile.compile('module.py', 'compiled.pyc')"],
                   cwd=launch.folder, check=True)
    for words in (["-m", "module"], ["-m", "package"], ["-m", "package.inner.deeper"], ["folder"], ["./folder/"],
                  ["archive.pyz"], ["compiled.pyc"], ["--run-path", "module.py"], ["--run-path", "package/__main__.py"]):
        seen = json.loads(launch.both(*words, "an argument", normal=observed)[0, "stdout"])["interpreter"]
        assert seen["argv"][1:] == ["an argument"], seen["argv"]
        if words[0] == "-m":
            assert words[1] in seen["main"]["__spec__"], seen["main"]


@promise("a forked worker has the modules of one that was not forked, the preloaded ones and the parent's own")
def _(launch):
    said = []
    for preload in None, PRELOADED:
        logs = launch.path(f"logs {preload}")
        launch.run("--nproc-per-node=1", f"--log-dir={logs}", "--redirects=3", OBSERVE, preload=preload)
        said.append(modules(streams(logs)))
    executed, forked = said
    explained = subprocess.run(
        [launch.python.path, "-c", f"import {PRELOADED}, {OF_THE_PARENT}; print(*sys.modules)"],
        stdout=subprocess.PIPE, universal_newlines=True, check=True).stdout.split()
    assert not executed - forked, f"gone: {executed - forked}"
    assert not forked - executed - set(explained), f"not explained: {forked - executed - set(explained)}"
    assert set(PRELOADED.split(",")) <= forked


@promise("tracebacks of the program, its imports, its threads and of syntax errors are the same")
def _(launch):
    launch.write("broken.py", "def f(:\n")
    launch.write("raises.py", "def f(x):\n    return 1 / x\n")
    launch.write("package/__init__.py", "")
    launch.write("package/__main__.py", "from . import gone\n")
    for name, text in (
            ("program", "import raises\ndef main():\n    raises.f(0)\nmain()\n"), ("imports", "import broken\n"),
            ("syntax", "x = 1\ny = = 2\n"), ("chained", "try:\n    {}['a']\nexcept KeyError:\n    import nothing.at_all\n"),
            ("deep", "def f():\n    f()\nf()\n"), ("encoding", "# coding: not-known\n"),
            ("group", "import traceback\nprint(''.join(traceback.format_stack()))\nraise Exception('a', 1)\n"),
            ("frames", "import sys\nf = sys._getframe()\nprint(f.f_back, f.f_code, f.f_globals is vars())\nf.f_back.x\n")):
        launch.both(launch.write(name + ".py", text), code=1,
                    normal=lambda content: content.replace(b"0x", b"\n0x").split(b"\n0x")[0])
    launch.both("-m", "package", code=1)
    launch.both("-m", "not_there.at_all", code=1)
    launch.both("-m", "package.gone", code=1)
    launch.both("--run-path", launch.path("imports.py"), code=1)
    launch.both(launch.write("thread.py", """
import threading
thread = threading.Thread(target=lambda: 1 / 0, name="divides")
thread.start()
thread.join()
"""), normal=lambda content: content.replace(b"<lambda>", b""))


@promise("a program that does not exist is reported as without --preload")
def _(launch):
    for words in ["is_not_there.py"], ["./no/such/folder/x.py"]:
        said = []
        for preload in None, PRELOADED:
            job = launch.start(*words, preload=preload)
            said.append((job.wait(), [line for line in job.err().splitlines() if "No such file" in line or words[0] in line
                                      and " info: " not in line and " first failure" not in line]))
        assert said[0][0] == said[1][0] != 0, said


@promise("a module in the program's folder takes precedence over a library module of the same name")
def _(launch):
    launch.write("json.py", "MINE = True\n")
    launch.write("random.py", "import os\nfrom math import pi\nMINE = True\ndef seed(*_):\n    pass\n")
    launch.write("elsewhere/json.py", "MINE = False\n")
    # warm_parent.py has imported these for itself, which must not matter.
    for name in "socket.py", "struct.py", "ctypes/__init__.py", "importlib.py", "traceback.py", "ast.py", "gc.py":
        launch.write(name, "MINE = True\n")
    program = launch.write("program.py", """
import json, random, socket, struct, ctypes, ast, traceback, gc, sys
print([hasattr(module, "MINE") for module in (json, random, socket, struct, ctypes, ast, traceback, gc)], json.__file__)
import importlib
print(hasattr(importlib, "MINE"), "ctypes._endian" in sys.modules)
""")
    launch.both(program)
    launch.both("-m", "program")
    launch.both(launch.path("program.py"), cwd="/")


@promise("the program's own modules can be preloaded, and the program imports the same ones")
def _(launch):
    launch.write("package/__init__.py", "import os\nPARENT = os.getpid()\n")
    launch.write("package/part.py", "SEEN = []\n")
    launch.write("here/mine.py", "import os\nPARENT = os.getpid()\n")
    program = launch.write("program.py", """
import os, package.part
assert package.PARENT != os.getpid(), "imported again"
package.part.SEEN.append(os.environ["RANK"])
print(package.part.SEEN)
""")
    for words in [program], ["-m", "program"]:
        job = launch.preloaded("--nproc-per-node=2", *words, preload="package.part")
        assert sorted(job.out().splitlines()) == ["['0']", "['1']"], job.said()


@promise("the user's sitecustomize, usercustomize and .pth files run once, before modules are preloaded")
def _(launch):
    launch.write("path/sitecustomize.py", "import sys\nsys.order = ['sitecustomize']\nFOUND = __file__\n")
    launch.write("path/usercustomize.py", "import sys\nsys.order.append('usercustomize')\n")
    launch.write("path/of_mine.py", "import sys\nsys.order.append('of_mine')\n")
    program = launch.write("program.py", """
import sys, sitecustomize
print(sitecustomize.FOUND, sitecustomize.__spec__.name)
print(sorted(sys.order), sys.order[0], len(sys.order))
import of_mine
print(sorted(sys.order))
""")
    launch.both(program, environment={"PYTHONPATH": launch.path("path")})
    job = launch.preloaded(program, preload="of_mine", environment={"PYTHONPATH": launch.path("path")})
    assert "['of_mine', 'sitecustomize'" in job.out() and "sitecustomize " in job.out(), job.said()


@promise("a sitecustomize that fails is reported as without --preload, and does no harm")
def _(launch):
    launch.write("path/sitecustomize.py", "raise ValueError('of sitecustomize')\n")
    program = launch.write("program.py", "import sys\nprint('sitecustomize' in sys.modules)\n")
    said = []
    for preload in None, PRELOADED:
        job = launch.run(program, preload=preload, environment={"PYTHONPATH": launch.path("path")})
        assert "ValueError: of sitecustomize" in job.err(), job.said()
        said.append(job.out())
    assert said[0] == said[1], said


@promise("a virtual environment has its own packages")
def _(launch):
    made = subprocess.run([launch.python.path, "-m", "venv", "--without-pip", launch.path("venv")],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    if made.returncode != 0:
        raise Skip(f"no virtual environment can be made: {made.stdout.strip()}")
    (site,) = subprocess.run([launch.path("venv/bin/python"), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
                             stdout=subprocess.PIPE, universal_newlines=True, check=True).stdout.split()
    launch.write(os.path.join(site, "of_the_venv.py"), "WHERE = __file__\n")
    launch.write(os.path.join(site, "mine.pth"), "import sys; sys.from_pth = getattr(sys, 'from_pth', 0) + 1\n")
    program = launch.write("program.py", "import sys, of_the_venv\nprint(of_the_venv.WHERE, sys.from_pth, sys.prefix)\n")
    own = {"PYTHON_EXEC": launch.path("venv/bin/python")}
    launch.both(program, environment=own)
    launch.both(OBSERVE, environment=own, normal=observed)
    launch.preloaded(program, preload="of_the_venv", environment=own)


@promise("threads, subprocesses and pools work in a worker")
def _(launch):
    program = launch.write("program.py", """
import concurrent.futures, multiprocessing, os, queue, subprocess, sys, threading

def square(x):
    return x * x

def tell(queue, key):
    queue.put((os.environ["RANK"], multiprocessing.parent_process().pid if hasattr(multiprocessing, "parent_process") else key,
               multiprocessing.current_process().authkey == key, __name__))

if __name__ == "__main__":
    print(sys.argv)
    threads = [threading.Thread(target=print, args=("of a thread",)) for _ in range(3)]
    for thread in threads:
        thread.start()
        thread.join()
    print(subprocess.check_output(["sh", "-c", "echo $RANK $PYTHONPATH $DDPRUN_WARM_PARENT; ls /proc/self/fd | wc -l"]))
    print(subprocess.check_output([sys.executable, "-c", "import sys; print('sitecustomize' in sys.modules, sys.path)"]))
    for method in "fork", "spawn", "forkserver":
        context = multiprocessing.get_context(method)
        answers = context.Queue()
        child = context.Process(target=tell, args=(answers, multiprocessing.current_process().authkey))
        child.start()
        rank, parent, same_key, name = answers.get()
        child.join()
        print(method, rank, same_key, name, child.exitcode, method == "forkserver" or parent in (os.getpid(), multiprocessing.current_process().authkey))
        with context.Pool(2) as pool:
            print(pool.map(square, range(5)))
        with context.Manager() as manager:
            print(dict(manager.dict(a=1)))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        print(list(pool.map(square, range(5))))
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        print(list(pool.map(square, range(5))))
    if sys.version_info >= (3, 8):
        from multiprocessing import shared_memory
        block = shared_memory.SharedMemory(create=True, size=100)
        block.buf[0] = 7
        print(block.buf[0])
        block.close()
        block.unlink()
""")
    launch.both(program, "--x", workers=2)
    job = launch.preloaded("--nproc-per-node=2", program, preload="multiprocessing,concurrent.futures,threading")
    assert "leaked" not in job.err(), job.said()


@promise("hooks, tracing and faulthandler work in a worker")
def _(launch):
    launch.both(launch.write("hook.py", """
import sys
sys.excepthook = lambda kind, value, trace: print("hooked", kind.__name__, trace.tb_lineno, trace.tb_next)
raise ValueError
"""), code=1)
    launch.both(launch.write("crash.py", """
import faulthandler, os, signal
faulthandler.enable()
os.kill(os.getpid(), signal.SIGSEGV)
"""), code=139, normal=lambda content: content.split(b"Extension modules")[0].replace(b"0x", b"\n").split(b"\n")[0])
    launch.both(launch.write("trace.py", """
import gc, sys, weakref
class Ring: pass
ring = Ring(); ring.self = ring
gone = weakref.ref(ring)
del ring
gc.collect()
print(gone() is None)
sys.settrace(lambda frame, event, _: print(event, frame.f_code.co_name))
def f(): pass
f()
sys.settrace(None)
"""))


@promise("a debugger, a profiler and coverage start with the program")
def _(launch):
    program = launch.write("program.py", "print('said')\n")
    said = launch.both("-m", "cProfile", "-s", "name", program, normal=lambda content: content.split(b"\n")[0])
    assert said[0, "stdout"].startswith(b"said\n"), said
    launch.both("-m", "trace", "--listfuncs", program,
                normal=lambda content: sorted(line for line in content.splitlines() if b"program" in line))
