# SPDX-License-Identifier: BSD-3-Clause
"""launch(): what it calls, and what it returns or raises."""
import os
import subprocess

from jobs import free_port
from promises import Skip, promise

NO_CLOUDPICKLE = "import sys; sys.modules['cloudpickle'] = None\n"


def need_cloudpickle(callers):
    if subprocess.run([callers.python, "-c", "import cloudpickle"], stderr=subprocess.DEVNULL, check=False).returncode:
        raise Skip("this Python has no cloudpickle")


@promise("launch returns what the function returned, by rank")
def _(callers):
    callers.write("work.py", "import os\n"
                             "def work(a, *, b): return os.environ['RANK'], os.environ['WORLD_SIZE'], a, b, os.getppid()\n")
    said = callers.script("from work import work\nresults = ddprun.launch(work, (1,), {'b': [2]}, nproc_per_node=3)\n"
                          "print({rank: result[:-1] for rank, result in results.items()})\n"
                          "print(len({result[-1] for result in results.values()}), os.getpid() in results[0])\n")
    assert said == "{0: ('0', '3', 1, [2]), 1: ('1', '3', 1, [2]), 2: ('2', '3', 1, [2])}\n1 False\n", said


@promise("launch gives workers the caller's arguments, module path, folder and environment")
def _(callers):
    script = callers.write("see.py", """
import ddprun, os, sys
def see(): return sys.argv, sys.path, os.getcwd(), os.environ.get("PYTHON_EXEC"), os.environ.get("DDPRUN_CALLER")
if __name__ == "__main__":
    sys.path.append("/nowhere")
    print(ddprun.launch(see)[0] == (sys.argv, sys.path, os.getcwd(), None, None))
""")
    assert callers.run(script, "--flag", "value") == "True\n"


@promise("launch calls functions of a script with and without cloudpickle, and returns its classes")
def _(callers):
    program = """
class Result:
    def __init__(self, value): self.value = value
def make(value): return Result(value)
if __name__ == "__main__":
    results = ddprun.launch(make, (Result(7),), nproc_per_node=2)
    print([type(result) is Result and result.value.value for result in results.values()])
"""
    assert callers.script(NO_CLOUDPICKLE + program) == "[7, 7]\n"
    assert callers.script(program) == "[7, 7]\n"
    callers.write("package/__init__.py", "")
    callers.write("package/train.py", NO_CLOUDPICKLE + "import ddprun\n" + program)
    assert callers.run("-m", "package.train") == "[7, 7]\n"
    callers.write("package/__main__.py", NO_CLOUDPICKLE + "import ddprun\n" + program)
    assert callers.run("-m", "package") == "[7, 7]\n"


@promise("launch in a script without a guard fails with a word about it, without cloudpickle")
def _(callers):
    job = callers.start(callers.write("script.py", NO_CLOUDPICKLE + "import ddprun\ndef f(): pass\nddprun.launch(f)\n"))
    assert job.wait() == 1, job.said()
    assert 'put the call under `if __name__ == "__main__":`' in job.err().splitlines()[-1], job.said()


@promise("launch refuses functions that workers cannot import, and says what to do")
def _(callers):
    said = callers.run("-c", NO_CLOUDPICKLE + """
import ddprun
class Number(int): pass
def function(value=None): pass
for what, args in ((function, ()), (lambda: 1, ()), (print, (Number(1),)), (print, (open("/dev/null"),))):
    try:
        ddprun.launch(what, args)
    except TypeError as error:
        print(error)
""").splitlines()
    assert len(said) == 4 and all("install cloudpickle" in line for line in said), said
    assert "in a notebook or at a prompt" in said[0] and "in a notebook or at a prompt" in said[2], said
    assert "TextIOWrapper" in said[3], said


@promise("launch calls lambdas and closures of a prompt where cloudpickle is installed")
def _(callers):
    need_cloudpickle(callers)
    said = callers.run("-c", """
import ddprun, os
class Pair:
    def __init__(self, *values): self.values = values
factor = 3
results = ddprun.launch(lambda x: Pair(int(os.environ["RANK"]), factor * x), (5,), nproc_per_node=2)
print([type(result) is Pair and result.values for result in results.values()])
def outer():
    inner = {"a": 1}
    return ddprun.launch(lambda: inner)
print(outer())
""")
    assert said == "[(0, 15), (1, 15)]\n{0: {'a': 1}}\n", said


@promise("launch moves arguments and results of many megabytes")
def _(callers):
    assert callers.script("""
import operator
data = bytes(range(256)) * (1 << 16)
print([result == data * 3 for result in ddprun.launch(operator.mul, (data, 3), nproc_per_node=2).values()])
""") == "[True, True]\n"


@promise("launch raises the first failure, with its rank and the worker's traceback")
def _(callers):
    said = callers.script("""
import pickle, signal
def fail(x):
    if os.environ["RANK"] == "2":
        raise ValueError("loss is NaN")
    signal.pause()
if __name__ == "__main__":
    try:
        ddprun.launch(fail, (1,), nproc_per_node=3)
    except ddprun.WorkerError as error:
        for error in error, pickle.loads(pickle.dumps(error)):
            print(error.rank, error.local_rank, error.node == os.uname().nodename, error.exit_code, error.signal)
            print(isinstance(error.pid, int), str(error).splitlines()[0])
            print(error.traceback)
            assert error.traceback in str(error), error
""").splitlines()
    half = len(said) // 2
    assert said[:half] == said[half:], said
    assert said[0] == "2 2 True 1 None", said
    assert said[1] == f"True fail() failed: rank 2 on node {os.uname().nodename} exited with code 1", said
    trace = said[2:half]
    assert trace[0] == "Traceback (most recent call last):" and trace[-1] == "ValueError: loss is NaN", trace
    assert "script.py" in trace[1] and "_worker.py" not in "".join(trace), trace


@promise("launch names the signal that killed a worker, and the code with which one exited")
def _(callers):
    said = callers.script("""
import signal
def die():
    sys.stderr.write("last words\\n")
    os.kill(os.getpid(), signal.SIGSEGV)
def leave(code): sys.exit(code)
if __name__ == "__main__":
    for what, args in ((die, ()), (leave, (9,)), (leave, ("why",))):
        try:
            ddprun.launch(what, args)
        except ddprun.WorkerError as error:
            print(error.signal, error.exit_code, repr(error.traceback))
    print(ddprun.launch(leave, (0,)))
""").splitlines()
    assert said == ["11 139 'last words'", "None 9 ''", "None 1 'why'", "{0: None}"], said


@promise("launch says which rank has no result, and which result cannot be sent")
def _(callers):
    said = callers.script("""
def leave():
    if os.environ["RANK"] == "1": os._exit(0)
def give(): return (number for number in range(3))
if __name__ == "__main__":
    for what in leave, give:
        try:
            ddprun.launch(what, nproc_per_node=2)
        except ddprun.LaunchError as error:
            print(type(error).__name__, str(error).splitlines()[-1])
""").splitlines()
    assert said[0] == "LaunchError leave() has no result of rank 1: it exited with code 0 before it had returned", said
    assert said[1].startswith("WorkerError TypeError: the result, of type generator, cannot be sent"), said


@promise("launch shows the beginning and the end of a long traceback")
def _(callers):
    said = callers.script("""
def fail(): raise ValueError("x" * 10_000_000 + "end")
if __name__ == "__main__":
    try:
        ddprun.launch(fail)
    except ddprun.WorkerError as error:
        print(error.rank, error.traceback[:9], error.traceback[-4:], 10_000 < len(error.traceback) < 20_000)
""")
    assert said == "0 Traceback xend True\n", said


@promise("launch returns the results of the last round after a restart")
def _(callers):
    said = callers.script("""
import time
def work():
    restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    if restarts == 0 and os.environ["RANK"] == "0":
        return "early"
    if restarts == 0:
        raise RuntimeError("once")
    return restarts
if __name__ == "__main__":
    print(ddprun.launch(work, nproc_per_node=2, max_restarts=1))
""")
    assert said == "{0: 1, 1: 1}\n", said


@promise("launch on several nodes gives each node its own results, and all of them the same failure")
def _(callers):
    program = callers.write("nodes.py", """
import ddprun, os, signal, sys
def work(fails):
    if fails and os.environ["RANK"] == "3":
        raise ValueError("on the second node")
    if fails:
        signal.pause()
    return os.environ["GROUP_RANK"]
if __name__ == "__main__":
    node, port, fails = sys.argv[1:]
    try:
        print(ddprun.launch(work, (fails == "yes",), nnodes=2, node_rank=int(node), nproc_per_node=2,
                            master_addr="127.0.0.1", master_port=int(port), secret="none"))
    except ddprun.WorkerError as error:
        print(error.rank, error.local_rank, error.traceback.splitlines()[-1])
""")
    for fails, expected in (("no", ["{0: '0', 1: '0'}", "{2: '1', 3: '1'}"]),
                            ("yes", ["3 1 ValueError: on the second node"] * 2)):
        port = free_port()
        nodes = [callers.start(program, node, port, fails) for node in (0, 1)]
        assert [node.wait() for node in nodes] == [0, 0], "\n".join(node.said() for node in nodes)
        assert [node.out().strip() for node in nodes] == expected, [node.out() for node in nodes]


@promise("launch calls the function in workers that were forked from a warm parent")
def _(callers):
    said = callers.script("""
def work(): return "json" in sys.modules, os.environ["RANK"]
if __name__ == "__main__":
    print(ddprun.launch(work, nproc_per_node=2, preload="json,random", log_level="info"))
""")
    assert said == "{0: (True, '0'), 1: (True, '1')}\n", said
    assert "imported json,random" in callers.jobs[-1].err(), callers.jobs[-1].said()


@promise("launch within a worker of launch runs a job of its own")
def _(callers):
    said = callers.script("""
def inner(): return os.environ["WORLD_SIZE"]
def outer(): return ddprun.launch(inner, nproc_per_node=2)
if __name__ == "__main__":
    print(ddprun.launch(outer))
""")
    assert said == "{0: {0: '2', 1: '2'}}\n", said


@promise("a result that a killed worker had half written is overwritten by the next")
def _(callers):
    said = callers.run("-c", """
import os, tempfile
from ddprun import _worker
os.environ.update(RANK="4", LOCAL_WORLD_SIZE="2")
with tempfile.TemporaryFile() as file:
    fd = file.fileno()
    print(_worker.read_records(fd))
    _worker.add_record(fd, _worker.STARTED)
    os.pwrite(fd, b"half of a record", os.fstat(fd).st_size)
    _worker.add_record(fd, _worker.RESULT, b"result")
    print([tuple(record) for record in _worker.read_records(fd)])
""").splitlines()
    assert said == ["[]", "[(0, 4, 2, b''), (1, 4, 2, b'result')]"], said
