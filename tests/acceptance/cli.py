# SPDX-License-Identifier: BSD-3-Clause
"""Rows 1 to 18: the command line, and what it starts."""
import json
import os
import re

from jobs import free_port
from launcher import RECORD, WORKERS, c10d, ended, environments, incarnations
from rows import not_run, row

# Further variables in a worker's environment; their values are not checked.
GIVEN = ("LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE",
         "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS",
         "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE",
         "TORCHELASTIC_SIGNALS_TO_HANDLE", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "OMP_NUM_THREADS")
TOUCH = """#!/bin/sh
touch "$1/$RANK"
"""


def check_four(folder):
    """Checks that four workers of one node ran, with the matching environment."""
    four = environments(folder, 4)
    for rank, environment in enumerate(four):
        missing = [name for name in GIVEN if name not in environment]
        assert not missing, f"rank {rank} has no {missing}"
        told = {name: environment[name] for name in ("RANK", "LOCAL_RANK", "ROLE_RANK")}
        assert set(told.values()) == {str(rank)}, told
        sizes = {name: environment[name] for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE")}
        assert set(sizes.values()) == {"4"}, sizes
        assert (environment["GROUP_RANK"], environment["GROUP_WORLD_SIZE"]) == ("0", "1")
        assert environment["TORCHELASTIC_USE_AGENT_STORE"] == "True"
    return four


@row("1", "a script runs in four workers, which have the caller's environment and every variable")
def _(launch):
    launch.run("--nnodes=1", "--nproc-per-node=4", "--rdzv-id=row1", "--monitor-interval=1", "--start-method=spawn",
               RECORD, f"--touch-file-dir={launch.path('seen')}", environment={"SENTINEL": "of the caller"})
    assert all(e["SENTINEL"] == "of the caller" for e in check_four(launch.path("seen")))


@row("2", "the same with --master-addr, --master-port and --node-rank")
def _(launch):
    port = free_port()
    launch.run("--nnodes=1", "--nproc-per-node=4", "--master-addr=localhost", f"--master-port={port}", "--node-rank=0",
               RECORD, f"--touch-file-dir={launch.path('seen')}")
    assert {e["MASTER_PORT"] for e in check_four(launch.path("seen"))} == {str(port)}


@row("3", "--no-python executes a program, and contradicts --module")
def _(launch):
    touch = launch.script("touch.sh", TOUCH)
    os.mkdir(launch.path("seen"))
    launch.run("--nproc-per-node=4", "--no-python", touch, launch.path("seen"))
    assert sorted(os.listdir(launch.path("seen"))) == ["0", "1", "2", "3"]
    launch.run("--nproc-per-node=4", "--no-python", "--module", touch, launch.path("seen"), good=False)


@row("3b", "the first -- is dropped before the program or right after it, and nowhere else")
def _(launch):
    script = launch.script("words.py", "import sys\nprint(sys.argv[1:])\n")
    for given, words in ((["--", "a", "--", "b"], ["a", "--", "b"]), (["a", "--", "b"], ["a", "--", "b"])):
        assert launch.run(script, *given).out() == f"{words}\n"
    assert launch.run("--", script, "--", "a").out() == "['--', 'a']\n"
    module = os.path.splitext(os.path.basename(script))[0]
    assert launch.run("-m", module, "--", "a", environment={"PYTHONPATH": launch.folder}).out() == "['a']\n"


@row("4", "one worker by default")
def _(launch):
    launch.run(RECORD, "--touch-file-dir", launch.path("seen"))
    environments(launch.path("seen"), 1)


@row("5", "PET_ variables stand for options")
def _(launch):
    os.mkdir(launch.path("seen"))
    pet = {"PET_NNODES": "1", "PET_NPROC_PER_NODE": "4", "PET_RDZV_ID": "row5", "PET_MONITOR_INTERVAL": "1",
           "PET_START_METHOD": "fork", "PET_NO_PYTHON": "1"}
    touch = launch.script("touch.sh", TOUCH), launch.path("seen")
    launch.run(*touch, environment=pet)
    assert sorted(os.listdir(launch.path("seen"))) == ["0", "1", "2", "3"]
    launch.run(*touch, environment={**pet, "PET_MODULE": "0"})
    launch.run(*touch, environment={**pet, "PET_MODULE": "1"}, good=False)


@row("6a", "--nproc-per-node takes a number or auto, and refuses other words")
def _(launch):
    no_gpus = {"CUDA_VISIBLE_DEVICES": ""}
    launch.run("--nproc-per-node=auto", RECORD, "--touch-file-dir", launch.path("auto"), environment=no_gpus)
    environments(launch.path("auto"), len(os.sched_getaffinity(0)))
    launch.run("--nproc_per_node=4", RECORD, "--touch-file-dir", launch.path("4"))
    environments(launch.path("4"), 4)
    launch.run("--nproc-per-node=unknown", RECORD, "--touch-file-dir", launch.path("none"), good=False)
    assert not os.path.exists(launch.path("none"))


not_run("6b", "--nproc-per-node=gpu is one worker for each GPU", "needs a GPU")


@row("7", "one agent of an elastic job starts after last call, with quotes around --rdzv-conf")
def _(launch):
    launch.run("--nnodes=1:2", "--nproc-per-node=4", "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{free_port()}",
               "--rdzv-id=row7", "--rdzv-conf='join_timeout=5,last_call_timeout=1,timeout=5'",
               RECORD, "--touch-file-dir", launch.path("seen"))
    check_four(launch.path("seen"))


@row("8", "a failed worker of an elastic job makes an error, a summary and one event of the agent")
def _(launch):
    events = (f"--event-log-file={launch.path('events')}" if launch.is_ddprun else "--event-log-handler=console",)
    job = launch.run(*c10d("1:2", free_port()), "--nproc-per-node=4", "--max-restarts=0", *events,
                     RECORD, "--touch-file-dir", launch.path("seen"), "--fail-even", good=False)
    said = job.err()
    assert re.search(r"record\.py (FAILED|failed)", said), said
    lines = open(launch.path("events")).read() if launch.is_ddprun else said
    events = [json.loads(line) for line in lines.splitlines() if line.startswith('{"name": "torchelastic.')]
    of_agent = [e["name"] for e in events if e["source"] == "AGENT" and e["name"].endswith(("FAILED", "SUCCEEDED"))]
    assert len(of_agent) == 1, events


@row("9a", "an error of the agent itself ends the job before any worker starts")
def _(launch):
    with open(launch.path("a file"), "w"):
        pass
    job = launch.run("--log-dir", launch.path("a file"), "-r3", RECORD, "--touch-file-dir", launch.path("seen"),
                     good=False)
    assert "a file" in job.err(), job.said()
    assert not os.path.exists(launch.path("seen"))


@row("10a", "--standalone needs no address and no id")
def _(launch):
    both = [launch.start("--standalone", "--nproc-per-node=2", RECORD, "--touch-file-dir", launch.path(name))
            for name in ("one", "other")]  # at the same time; the jobs share nothing
    for job in both:
        ended(job)
    one, other = environments(launch.path("one"), 2)[0], environments(launch.path("other"), 2)[0]
    assert one["MASTER_PORT"] != other["MASTER_PORT"]
    assert one["TORCHELASTIC_RUN_ID"] != other["TORCHELASTIC_RUN_ID"]


@row("10c", "with one node a master address that nobody knows is no obstacle")
def _(launch):
    launch.run(RECORD, "--touch-file-dir", launch.path("seen"), environment={"PET_MASTER_ADDR": "no-such-name.invalid"})
    environments(launch.path("seen"), 1)


@row("10d", "the run's id is as given with an endpoint, else none, and new without an endpoint")
def _(launch):
    def run_id(*options):
        folder = launch.path(str(len(os.listdir(launch.folder))))
        launch.run(*options, RECORD, "--touch-file-dir", folder)
        return environments(folder, 1)[0]["TORCHELASTIC_RUN_ID"]

    assert run_id(f"--master-port={free_port()}") == "none"
    assert run_id(f"--master-port={free_port()}", "--rdzv-id=mine") == "mine"
    assert run_id("--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0") == "none"
    assert run_id() not in ("none", run_id())


@row("10b", "--run-path runs a script as __main__")
def _(launch):
    launch.run("--run-path", "--nproc-per-node=2", RECORD, "--touch-file-dir", launch.path("seen"), "a word")
    environments(launch.path("seen"), 2)
    for one, in incarnations(launch.path("seen")).values():
        assert (one["name"], one["words"]) == ("__main__", ["a word"]), one


@row("11", "two agents make one job of eight ranks")
def _(launch):
    job = ("--nnodes=1:2", "--nproc-per-node=4", "--rdzv-backend=c10d", "--rdzv-id=row11", "--local-addr=127.0.0.1",
           f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv_conf=timeout=5", RECORD, "--touch-file-dir",
           launch.path("seen"))
    for agent in [launch.start(*job), launch.start(*job)]:
        ended(agent)
    eight = environments(launch.path("seen"), 8)
    assert [e["GROUP_RANK"] for e in eight] == ["0"] * 4 + ["1"] * 4


@row("12", "--nnodes takes N or MIN:MAX and nothing longer")
def _(launch):
    launch.run("--nnodes", "1", RECORD, "--touch-file-dir", launch.path("1"))
    environments(launch.path("1"), 1)
    job = (*c10d("2:20", free_port()), RECORD, "--touch-file-dir", launch.path("2"))
    for agent in [launch.start(*job), launch.start(*job)]:
        ended(agent)
    environments(launch.path("2"), 2)
    for wrong in "2:20:30", "3:2", "0", "":
        launch.run("--nnodes", wrong, RECORD, "--touch-file-dir", launch.path("none"), good=False)
    assert not os.path.exists(launch.path("none"))


@row("13", "torch.distributed knows that it was launched, and when it was not", torch=True)
def _(launch):
    script = launch.script("launched.py", "import torch.distributed\n"
                           "print('launched:', torch.distributed.is_torchelastic_launched())\n")
    assert "launched: True" in launch.run("--rdzv-id=row13", script).out()
    assert "launched: False" in launch.alone(launch.python, script).out()


@row("14", "--logs_specs of a plug-in that is not there is an error")
def _(launch):
    job = launch.run("--logs_specs=DOESNOT_EXIST", RECORD, "--touch-file-dir", launch.path("none"), good=False)
    assert re.search("logs.specs", job.err()), job.said()
    assert not os.path.exists(launch.path("none"))


@row("15", "init_process_group takes tcp:// at the master port and env://", torch=True)
def _(launch):
    for method in "tcp://localhost", "env://":
        port = free_port()
        url = f"{method}:{port}" if method.startswith("tcp") else method
        job = launch.run(*launch.warm, "--nproc-per-node=4", "--master-addr=localhost", f"--master-port={port}",
                         os.path.join(WORKERS, "sum.py"), url)
        assert job.out().count("the sum of 4 ranks is 6") == 4, job.said()


@row("16", "--redirect=3 --tee=3, abbreviated, prints each rank's lines after the prefix asked for")
def _(launch):
    job = launch.run("--nproc-per-node=4", "--redirect=3", "--tee=3", f"--log-dir={launch.path('logs')}",
                     "--no-python", launch.script("say.sh", "#!/bin/sh\necho hello from $RANK\n"),
                     environment={"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[rank${rank}]: "})
    assert sorted(job.out().splitlines()) == [f"[rank{rank}]: hello from {rank}" for rank in range(4)], job.said()


@row("17a", "--virtual-local-rank gives each worker one GPU of those listed, and local rank 0")
def _(launch):
    options = "--nproc-per-node=2", RECORD, "--touch-file-dir"
    listed = {"CUDA_VISIBLE_DEVICES": "4,6"}
    launch.run("--virtual-local-rank", *options, launch.path("virtual"), environment=listed)
    launch.run(*options, launch.path("real"), environment=listed)
    seen = [[(e["LOCAL_RANK"], e["CUDA_VISIBLE_DEVICES"]) for e in environments(launch.path(name), 2)]
            for name in ("virtual", "real")]
    assert seen == [[("0", "4"), ("0", "6")], [("0", "4,6"), ("1", "4,6")]], seen


@row("17c", "without GPUs --virtual-local-rank numbers them, and the entries of HIP_VISIBLE_DEVICES come first")
def _(launch):
    def seen(name, **listed):
        launch.run("--virtual-local-rank", "--nproc-per-node=2", RECORD, "--touch-file-dir", launch.path(name),
                   environment=listed)
        return [[e.get(variable) for variable in ("LOCAL_RANK", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")]
                for e in environments(launch.path(name), 2)]

    if "CUDA_VISIBLE_DEVICES" not in os.environ and not os.path.exists("/dev/nvidiactl"):
        assert seen("none") == [["0", "0", None], ["0", "1", None]]
    assert seen("hip", HIP_VISIBLE_DEVICES="4, 6") == [["0", "4", "4"], ["0", "6", "6"]]


@row("17d", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE leaves the store to rank 0, but not in a static job", torch=True)
def _(launch):
    own_store = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    launch.run("--nproc-per-node=1", RECORD, "--touch-file-dir", launch.path("own"), environment=own_store)
    assert environments(launch.path("own"), 1)[0]["TORCHELASTIC_USE_AGENT_STORE"] == "False"
    launch.run(f"--master-port={free_port()}", RECORD, "--touch-file-dir", launch.path("given"), environment=own_store)
    assert environments(launch.path("given"), 1)[0]["TORCHELASTIC_USE_AGENT_STORE"] == "True"
    job = launch.run("--nproc-per-node=2", os.path.join(WORKERS, "sum.py"), "env://", environment=own_store)
    assert job.out().count("the sum of 2 ranks is 1") == 2, job.said()


not_run("17b", "with --virtual-local-rank tensors of every rank are on cuda:0", "needs two GPUs")


@row("18", "the summary's title names the script, the module or the program")
def _(launch):
    script = launch.script("fails.py", "raise SystemExit(3)\n")
    program = launch.script("fails.sh", "#!/bin/sh\nexit 3\n")
    module = os.path.splitext(os.path.basename(script))[0]
    for title, arguments in (script, [script]), (module, ["-m", module]), (program, ["--no-python", program]):
        job = launch.run(*arguments, good=False, environment={"PYTHONPATH": launch.folder})
        assert re.search(rf"(^|\s){re.escape(title)} (FAILED|failed)", job.err()), f"no title {title}; {job.said()}"
