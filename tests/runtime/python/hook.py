# SPDX-License-Identifier: BSD-3-Clause
"""ddprun_torchrun.pth and what it leads to, with a PyTorch that has only the modules it meets. The real one is in
tests/interop/torchrun/test_torch_distributed_run.py."""
import os
import re
import shutil
import subprocess

from callers import PACKAGE
from promises import Skip, promise

TORCHRUN = os.path.join(PACKAGE, "torchrun")
HOOK = os.path.join(TORCHRUN, "ddprun_torchrun.pth")
TORCH = {
    "torch/distributed/launcher/__init__.py": "from torch.distributed.launcher.api import launch_agent\n",
    "torch/distributed/launcher/api.py":
        "def _get_entrypoint_name(entrypoint, args):\n    return 'program'\n"
        "def launch_agent(config, entrypoint, args):\n    print('own', flush=True)\n    return {0: None}\n",
    "torch/distributed/elastic/multiprocessing/__init__.py":
        "class DefaultLogsSpecs:\n    root_log_dir, _redirects, _tee, _local_ranks_filter = '/dev/null', 0, 0, None\n",
}
for package in ("torch", "torch/distributed", "torch/distributed/elastic"):
    TORCH[package + "/__init__.py"] = ""
LAUNCH = """
import torch.distributed.launcher as launcher
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
class Config:
    min_nodes = max_nodes = nproc_per_node = 1
    run_id, rdzv_backend, rdzv_configs, metrics_cfg, logs_specs = "job", "static", {"rank": 0}, {}, DefaultLogsSpecs()
print(launcher.launch_agent(Config, "/bin/sh", ["-c", "cat /proc/$PPID/comm"]))
"""


def make_venv(callers, *paths):
    """Makes a virtual environment with the hook and these folders of packages. Returns (its Python, its packages)."""
    made = subprocess.run([callers.python, "-m", "venv", "--without-pip", callers.path("venv")],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, timeout=60)
    if made.returncode != 0:
        raise Skip(f"{callers.python} makes no venv: {made.stdout}")
    python = callers.path("venv", "bin", "python")
    site = callers.run("-c", "import site; print(site.getsitepackages()[0])", command=[python]).strip()
    shutil.copy(HOOK, site)
    with open(os.path.join(site, "a_paths.pth"), "w") as file:
        file.write("\n".join(paths))
    for name, text in TORCH.items():
        callers.write(name, text)
    callers.environment.pop("PYTHONPATH")
    return python, site


def launches(callers, python, **variables):
    """Launches a job with torch's launch_agent(), and returns what was printed: on stdout, and on stderr."""
    job = callers.start("-c", LAUNCH, command=[python], environment=variables)
    assert job.wait() == 0, job.said()
    return job.out().split("\n", 1)[0], job.err()


@promise("ddprun_torchrun.pth: a Python without PyTorch starts as before, with -S, -E, -s and -I too")
def _(callers):
    python, _ = make_venv(callers, PACKAGE, TORCHRUN)
    shutil.rmtree(callers.path("torch"))
    seen = ("import sys\nprint([n for n in sys.modules if 'ddprun' in n], any('Ddprun' in str(f) for f in sys.meta_path))"
            "\ntry: import torch.distributed.run\nexcept ImportError: print('none')")
    for flags, is_there in (([], True), (["-S"], False), (["-E"], True), (["-s"], True), (["-I"], True)):
        job = callers.start(*flags, "-c", seen, command=[python])
        assert job.wait() == 0 and job.err() == "", job.said()
        assert job.out() == f"[] {is_there}\nnone\n", (flags, job.said())


@promise("ddprun_torchrun.pth: launch_agent() is ddprun's once PyTorch is imported, PyTorch's with DDPRUN_DISABLE=1")
def _(callers):
    python, _ = make_venv(callers, PACKAGE, TORCHRUN)
    assert launches(callers, python) == ("ddprun", "")
    assert launches(callers, python, DDPRUN_DISABLE="0") == ("ddprun", "")
    assert launches(callers, python, DDPRUN_DISABLE="1") == ("own", "")
    again = "import importlib, torch.distributed.launcher.api as a\nimportlib.reload(a)\nprint(a.launch_agent.__wrapped__)"
    assert callers.run("-c", again, command=[python]).startswith("<function launch_agent")


@promise("ddprun_torchrun.pth: where something is missing or damaged, PyTorch's own launcher runs, and a line says why")
def _(callers):
    python, site = make_venv(callers, PACKAGE)  # without the package ddprun_torchrun
    own = os.path.join(site, "ddprun_torchrun")

    def check(reason, **variables):
        out, err = launches(callers, python, **variables)
        assert out == "own" and err.count("\n") == 1 and re.search(reason, err), (out, err)

    check("No module named 'ddprun_torchrun'")
    os.mkdir(own)
    check("cannot import name 'find_spec'")
    callers.write(os.path.join(own, "__init__.py"), "def damaged(\n")
    check("SyntaxError")
    shutil.rmtree(own)
    shutil.copytree(os.path.join(TORCHRUN, "ddprun_torchrun"), own)
    os.remove(os.path.join(own, "_options.py"))
    check("ddprun-torchrun is damaged.*_options")
    shutil.copy(os.path.join(TORCHRUN, "ddprun_torchrun", "_options.py"), own)
    assert launches(callers, python) == ("ddprun", "")
    check("cannot be used .*'ddprun'.* is in none of", PATH="/nowhere")
    os.remove(os.path.join(site, "a_paths.pth"))
    check("No module named 'ddprun'.*pip install ddprun")
    # PyTorch is another one than was expected: nothing is replaced.
    callers.write("torch/distributed/launcher/__init__.py", "")
    callers.write("torch/distributed/launcher/api.py", "launch = 1\n")
    job = callers.start("-c", "import torch.distributed.launcher.api", command=[python])
    assert job.wait() == 0 and "no attribute 'launch_agent'" in job.err(), job.said()


@promise("ddprun_torchrun.pth imports nothing at a Python's start, and adds one finder even if it is read twice")
def _(callers):
    with open(HOOK) as file:
        lines = file.readlines()
    assert len(lines) == 1 and lines[0].startswith("import "), lines
    # As the module site runs it in a fresh interpreter: in a virtual environment twice.
    read = ("import site, sys\nbefore = set(sys.modules)\n"
            "for _ in range(2): site.addpackage(*sys.argv[1:], set())\n"
            "assert set(sys.modules) == before, set(sys.modules) - before\n"
            "assert sum('Ddprun' in repr(f) for f in sys.meta_path) == 1")
    callers.run("-c", read, *os.path.split(HOOK))
