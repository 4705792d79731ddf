#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The package ddprun_torchrun: those who call torch.distributed.run or elastic_launch() get ddprun, and see what torch
shows. Each call is made twice, with DDPRUN_DISABLE=1, which is torch's own launcher, and without; both are compared.

usage: test_torch_distributed_run.py DDPRUN RUNTIME_PYTHON calls|programs|accelerate|fabric|torchx|lightning|deepspeed
"""
import contextlib
import importlib.util
import io
import json
import os
import re
import shutil
import signal
import site
import subprocess
import sys
import tempfile
import threading
import time

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import jobs  # noqa: E402

WORKERS = {
    # Writes one line into the folder `lines`, with the name of the process that has started the worker.
    "show.py": "import json, os, sys\n"
               "variables = ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'TORCHELASTIC_RUN_ID', 'TORCHELASTIC_MAX_RESTARTS',\n"
               "             'ROLE_NAME', 'OMP_NUM_THREADS')\n"
               "parent = open(f'/proc/{os.getppid()}/comm').read().strip()\n"
               "line = [sys.argv, sys.executable, sys.stdin.read(), *map(os.environ.get, variables)]\n"
               "with open('lines/' + os.environ['RANK'], 'w') as file:\n"
               "    file.write(json.dumps([parent, line]))\n",
    "exit.py": "import os, signal, sys\n"
               "sys.exit(int(sys.argv[1])) if os.environ['RANK'] == '0' else signal.pause()\n",
    "die.py": "import os, sys, signal\n"
              "os.kill(os.getpid(), 9) if os.environ['RANK'] == '1' else signal.pause()\n",
    # Writes what @record does, without importing PyTorch.
    "record.py": "import json, os, sys\n"
                 "with open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w') as file:\n"
                 "    json.dump({'message': {'message': 'ValueError: loss', 'extraInfo':\n"
                 "               {'py_callstack': 'Traceback\\nValueError: loss', 'timestamp': '1700000000'}}}, file)\n"
                 "sys.exit(1)\n",
    "wait.py": "import signal, sys, time\n"
               "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
               "print('ready', flush=True)\nsignal.pause()\n",
}
FUNCTIONS = """import os, signal
def parent(word, number):
    with open(f"/proc/{os.getppid()}/comm") as file:
        return [word, number + int(os.environ["RANK"]), file.read().strip()]
def fail():
    if os.environ["RANK"] == "1":
        raise ValueError("loss is NaN")
    signal.pause()
"""


def make_venv(folder, ddprun, runtime_python):
    """Makes a virtual environment that has this Python's packages, ddprun and ddprun_torchrun. Returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = os.path.join(folder, "bin", "python")
    packages = subprocess.check_output([python, "-c", "import site; print(site.getsitepackages()[0])"], text=True)
    packages = packages.strip()
    hook = os.path.join(runtime_python, "torchrun", "ddprun_torchrun.pth")
    with open(os.path.join(packages, "a_paths.pth"), "w") as file:
        import torch
        file.write("\n".join([runtime_python, os.path.dirname(hook), *site_folders(),
                              os.path.dirname(os.path.dirname(torch.__file__))]))
    os.symlink(hook, os.path.join(packages, "ddprun_torchrun.pth"))
    os.symlink(os.path.abspath(ddprun), os.path.join(folder, "bin", "ddprun"))
    return python


def site_folders():
    return [folder for folder in site.getsitepackages() if os.path.isdir(folder)]


def outcome_of(call):
    """Returns how a call ends and what the workers wrote, without what differs from run to run; the names of the
    processes that started them; and what was said on stderr meanwhile."""
    os.makedirs("lines")
    said = io.StringIO()
    parents = set()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            result = call()
        if isinstance(result, dict):
            parents = {value.pop() for value in result.values() if value}
        end = ("returned", result)
    except SystemExit as error:
        end = ("SystemExit", error.code)
    except Exception as error:
        end = (type(error).__name__, getattr(error, "name", None) or re.sub("0x[0-9a-f]+", "#", str(error)),
               {rank: shown(failure) for rank, failure in getattr(error, "failures", {}).items()})
    lines = []
    for name in sorted(os.listdir("lines")):
        with open(os.path.join("lines", name)) as file:
            parent, line = json.load(file)
        parents.add(parent)
        lines.append([re.sub("^[0-9a-f-]{16,}$", "random", str(word)) for word in line])
    shutil.rmtree("lines")
    return end, lines, parents, said.getvalue()


def shown(failure):
    message = failure.message["message"] if isinstance(failure.message, dict) else failure.message
    message = message.replace(f"PID {failure.pid}", "PID")
    return failure.local_rank, failure.exitcode, os.path.basename(failure.error_file), message


def check_calls():
    """Runs in the virtual environment, in one process, since importing PyTorch takes seconds."""
    sys.stdin.close()
    import torch.distributed.launch
    import torch.distributed.launcher as launcher
    import torch.distributed.run as run
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std

    import functions

    def config(**more):
        options = {"min_nodes": 1, "max_nodes": 1, "nproc_per_node": 2, "rdzv_backend": "c10d", "run_id": "job",
                   "rdzv_endpoint": "localhost:0", "max_restarts": 0, "local_addr": "127.0.0.1"}
        return launcher.LaunchConfig(**{**options, **more})

    def elastic(entrypoint, *args, **more):
        return lambda: launcher.elastic_launch(config(**more), entrypoint)(*args)

    def namespace(*words):
        return lambda: run.run(run.parse_args(words))

    def main(*words):
        return lambda: run.main(list(words))

    def in_thread(call):
        def waits():
            result = []
            thread = threading.Thread(target=lambda: result.append(call()))
            thread.start()
            thread.join()
            return result
        return waits

    class OwnLogs(DefaultLogsSpecs):
        pass

    python, two = sys.executable, "--nproc-per-node=2"
    # For these, torch's own workers import PyTorch, which takes up to 20 s. What they show is pinned here, unless
    # everything is to be compared.
    pinned = {} if os.environ.get("DDPRUN_TEST_FULL_INTEROP") else {
        "run() with --run-path": ("returned", None),
        "a function": ("returned", {0: ["loss", 5], 1: ["loss", 6]}),
        "a function that fails": ("ChildFailedError", "fail", {1: (1, 1, "error.json", "ValueError: loss is NaN")}),
    }
    by = {}  # what has run a job by ddprun, or has not
    for what, call in {
        "main() with a list": main(two, "--role=r", "--max-restarts=3", "show.py", "--", "$local_rank",
                                   "${local_rank}"),
        "run() with a Namespace": namespace(two, "--rdzv-id=a,b=c", "-m", "show", "--nproc-per-node=5"),
        "run() of a program": namespace("--no-python", python, "show.py"),
        "run() with --run-path": namespace(two, "--run-path", "./show.py", "a"),
        "torch.distributed.launch": lambda: torch.distributed.launch.main([two, "show.py", "a"]),
        "a static job": namespace(two, "--nnodes=1:1", f"--master-port={jobs.free_port()}", "show.py"),
        "elastic_launch() of a command": elastic(python, "-u", "show.py", "a"),
        "a thread": in_thread(elastic(python, "-u", "show.py")),
        "a worker that exits with 7": namespace(two, "exit.py", "7"),
        "a worker that is killed": elastic(python, "-u", "die.py"),
        "a worker with an error file": elastic(python, "record.py", nproc_per_node=1),
        "a script that is not there": namespace("nowhere.py"),
        "a program that is not there": namespace("--no-python", "./nowhere"),
        "options that are wrong": main("--nothing", "show.py"),
        "values that are wrong": main("--nnodes=1:2:3", "show.py"),
        "another value that is wrong": main("--nproc-per-node=some", "show.py"),
        "--help": main("--help"),
        "logs of one's own": elastic(python, "-u", "show.py", logs_specs=OwnLogs()),
        "a backend of one's own": elastic(python, "-u", "show.py", rdzv_backend="mine"),
        "a function": elastic(functions.parent, "loss", 5),
        "a function that fails": elastic(functions.fail),
        "a function that cannot be sent": elastic(lambda: 1),
        "a function with fork": elastic(functions.parent, "loss", 5, start_method="fork"),
    }.items():
        os.environ["DDPRUN_DISABLE"] = "0"
        start = time.monotonic()
        end, lines, parents, said = outcome_of(call)
        by[what] = (parents, jobs.lines_with(said, "PyTorch's own launcher runs this job, since "))
        seconds = f"{time.monotonic() - start:.1f} s by ddprun"
        theirs, their_lines = pinned.get(what), lines
        if not theirs:
            os.environ["DDPRUN_DISABLE"] = "1"
            start = time.monotonic()
            theirs, their_lines, their_parents, _ = outcome_of(call)
            assert "ddprun" not in their_parents, what
            seconds += f", {time.monotonic() - start:.1f} s by torch"
        both = f"torch:  {theirs} {their_lines}\nddprun: {end} {lines}"
        assert (end, lines) == (theirs, their_lines), f"{what}\n{both}\n{said}"
        print(f"ok   {what}: {str(end)[:60]} ({seconds}) {'; '.join(by[what][1])}", flush=True)

    torchs_own = {"a program that is not there": "ddprun refuses it", "logs of one's own": "OwnLogs, a Python class",
                  "a backend of one's own": "no rendezvous backend 'mine'",
                  "a function that cannot be sent": "cannot be sent", "a function with fork": "start_method is fork"}
    for what, (parents, lines) in by.items():
        reason = torchs_own.get(what)
        assert len(lines) == (1 if reason else 0) and (not reason or reason in lines[0]), (what, lines)
        assert parents <= ({"ddprun"} if not reason else {"python", "pt_elastic"}), (what, parents)
    assert sum(parents == {"ddprun"} for parents, _ in by.values()) == 9, by

    # Logs are where torch puts them, and torch's folder for them goes if it holds nothing.
    def logs_of():
        with tempfile.TemporaryDirectory(dir=".") as logs:
            own = DefaultLogsSpecs(logs, redirects={0: Std.OUT}, tee=Std.ERR, local_ranks_filter={1})
            elastic(python, "-u", "-c", "print(1)", logs_specs=own)()
            return sorted(re.sub("job_[^/]+", "job", os.path.relpath(os.path.join(at, name), logs))
                          for at, _, names in os.walk(logs) for name in names)
    ours = logs_of()
    os.environ["DDPRUN_DISABLE"] = "1"
    theirs = logs_of()
    os.environ["DDPRUN_DISABLE"] = "0"
    assert ours == theirs and "job/attempt_0/0/stdout.log" in ours, (ours, theirs)
    before = set(os.listdir(tempfile.gettempdir()))
    namespace("exit.py", "0")()
    assert set(os.listdir(tempfile.gettempdir())) == before
    print("ok   logs have the same names, and no empty folder stays")

    # What ddprun cannot be: missing, too old, of another machine.
    binary, aside = os.path.join(sys.prefix, "bin", "ddprun"), "ddprun.aside"
    os.rename(binary, aside)
    path = os.environ["PATH"]
    os.environ["PATH"] = "/nowhere"
    for content, reason in [(None, "in none of"), ("\x7fELF nothing", "cannot be started"),
                            ("#!/bin/sh\nexit 2\n", "ddprun refuses it")]:
        if content:
            with open(binary, "w") as file:
                file.write(content)
            os.chmod(binary, 0o755)
        end, _, parents, said = outcome_of(elastic(python, "-u", "show.py"))
        assert end == ("returned", {0: None, 1: None}) and "ddprun" not in parents, (end, parents)
        assert len(jobs.lines_with(said, reason)) == 1, said
        print(f"ok   torch's own runs where ddprun is not usable: {said.strip()[:150]}")
    os.environ["PATH"] = path
    os.rename(aside, binary)


def write_torchrun(python):
    """Writes the script that PyTorch's wheel makes; returns its path."""
    path = os.path.join(os.path.dirname(python), "torchrun")
    with open(path, "w") as file:
        file.write(f"#!{python}\nimport sys\nfrom torch.distributed.run import main\nsys.exit(main())\n")
    os.chmod(path, 0o755)
    return path


def check_programs(python):
    """What is started as a program of its own: exit codes, signals, what is left if it is killed."""
    quiet = {"OMP_NUM_THREADS": "1", "PET_LOCAL_ADDR": "127.0.0.1"}
    os.mkdir("lines")
    jobs.run(write_torchrun(python), "--nproc-per-node=2", "show.py", environment=quiet)
    for rank in "01":
        with open(os.path.join("lines", rank)) as file:
            assert json.load(file)[0] == "ddprun"
    print("ok   PyTorch's script torchrun reaches ddprun")

    _, said = jobs.run(python, "-W", "ignore", "-m", "torch.distributed.launch", "--nproc-per-node=2", "exit.py", "7",
                       environment=quiet, exit_code=1)
    assert "ddprun: exit.py failed: rank 0 " in said and "ChildFailedError: \n" in said, said
    print("ok   python -m torch.distributed.launch reaches ddprun, and fails as PyTorch does")

    everything = os.environ.get("DDPRUN_TEST_FULL_INTEROP")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL) if everything else (signal.SIGTERM, signal.SIGKILL):
        with jobs.Job(python, "-m", "torch.distributed.run", "--nproc-per-node=2", "wait.py", environment=quiet) as job:
            job.until(lambda: job.out().count("ready") == 2, "both workers")
            job.signal(number)
            code = job.wait()
            jobs.until(lambda: not job.left_over(), "the end of all processes")
            if number != signal.SIGKILL:
                assert code == 1, job.said()
                assert f"SignalException: Process {job.pid} got signal: {int(number)}" in job.err(), job.said()
            print(f"ok   {number.name} to python -m torch.distributed.run ends the job, and nothing is left")


# accelerate's own test scripts that end on CPUs under any launcher; the first one takes the least time. With --cpu,
# accelerate launch would start one process by itself; ACCELERATE_USE_CPU=1 keeps the workers off GPUs.
ACCELERATE = ["test_cli.py", "test_script.py", "test_ops.py", "test_sync.py"]
SCRIPTS = {
    "fabric": """import lightning_fabric, torch
fabric = lightning_fabric.Fabric()
model = torch.nn.Linear(2, 1)
model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
fabric.backward(model(torch.ones(4, 2) * (1 + fabric.global_rank)).sum())
optimizer.step()
weights = fabric.all_gather(next(model.parameters()).detach())
assert torch.equal(weights[0], weights[1]), weights
""",
    "lightning": """import pytorch_lightning, torch
from torch.utils.data import DataLoader, TensorDataset
class Model(pytorch_lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, _):
        return self.layer(batch[0]).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
trainer = pytorch_lightning.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, logger=False,
                                    enable_checkpointing=False, enable_progress_bar=False)
trainer.fit(Model(), DataLoader(TensorDataset(torch.randn(16, 4)), batch_size=4))
assert trainer.world_size == 2
""",
    "deepspeed": """import deepspeed, torch
deepspeed.init_distributed(dist_backend="gloo")
model = torch.nn.Linear(4, 1)
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={
    "train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}})
loss = engine(torch.ones(2, 4) * (1 + engine.global_rank)).mean()
engine.backward(loss)
engine.step()
weights = [torch.empty_like(model.weight) for _ in range(2)]
torch.distributed.all_gather(weights, model.weight.detach())
assert engine.world_size == 2 and torch.equal(*weights), weights
torch.distributed.destroy_process_group()
""",
    "torchx": "",
}
# The launcher of a worker; ddprun is the parent of its workers.
SHOW_PARENT = "print(open(f'/proc/{__import__(\"os\").getppid()}/comm').read().strip(), 'has run me', flush=True)\n"


def check_framework(name, python, ddprun):
    """A program of others, as it is, with two workers."""
    module = {"lightning": "pytorch_lightning", "fabric": "lightning_fabric"}.get(name, name)
    if not importlib.util.find_spec(module):
        print(f"skipped: {sys.executable} has no {module} (pip install {module.replace('_', '-')})")
        sys.exit(77)
    if name in SCRIPTS:
        with open("train.py", "w") as file:
            file.write(SCRIPTS[name] + SHOW_PARENT)
    write_torchrun(python)
    environment = {"PATH": os.path.dirname(python) + os.pathsep + os.environ["PATH"], "OMP_NUM_THREADS": "1",
                   "ACCELERATE_USE_CPU": "1", "DS_ACCELERATOR": "cpu", "LOGLEVEL": "INFO"}
    accelerates = os.path.join(os.path.dirname(importlib.util.find_spec("accelerate").origin), "test_utils", "scripts")
    everything = os.environ.get("DDPRUN_TEST_FULL_INTEROP")
    for command in {
        "accelerate": [[python, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes=2",
                        "--num_machines=1", "--mixed_precision=no", "--dynamo_backend=no", os.path.join(accelerates, script)]
                       for script in ACCELERATE[:None if everything else 1]],
        "fabric": [[python, "-c", "from lightning_fabric.cli import _main; _main()", "run", "--accelerator=cpu",
                    "--devices=2", "--strategy=ddp", "train.py"]],
        "torchx": [[python, "-m", "torchx.cli.main", "run", "--scheduler=local_cwd", "dist.ddp", "-j", "1x2",
                    "--script", "train.py"]],
        "lightning": [[ddprun, "--nproc-per-node=2", "train.py"]],
        "deepspeed": [[ddprun, "--nproc-per-node=2", "train.py"]],
    }[name]:
        out, err = jobs.run(*command, environment=environment, patience=500)
        if name in SCRIPTS:
            assert (out + err).count("ddprun has run me") == 2, out + err
        else:
            assert "started 2 workers of " in err, err
        print(f"ok   {' '.join(command[1:])}")


def main():
    ddprun, runtime_python, part = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3]
    if part == "inside":
        return check_calls()
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "tmp"))
        for name, text in {**WORKERS, "functions.py": FUNCTIONS}.items():
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)
        python = make_venv(os.path.join(folder, "venv"), ddprun, runtime_python)
        os.environ["TMPDIR"] = os.path.join(folder, "tmp")
        os.chdir(folder)
        if part == "programs":
            return check_programs(python)
        if part != "calls":
            return check_framework(part, python, ddprun)
        environment = {"PYTHONPATH": f"{os.path.dirname(os.path.abspath(jobs.__file__))}:{folder}"}
        with jobs.Job(python, HERE, ddprun, runtime_python, "inside", environment=environment, patience=300) as job:
            assert job.wait() == 0, job.said()
            jobs.until(lambda: not job.left_over(), "the end of all processes")
            print(job.out(), end="")


HERE = os.path.abspath(__file__)
if __name__ == "__main__":
    main()
