# SPDX-License-Identifier: BSD-3-Clause
"""The backend "ddp" of torch.distributed in real PyTorch: its operations and training give what Gloo gives, and its
groups begin, fail and end as they should.

usage: test_torch_backend.py DDPRUN ROOT PART...    (PART: operations, training, detail, lives, own_tests, all)

DDPRUN_TEST_RANKS: numbers of ranks for operations and training, such as "2 4 8" (default: one number each).
"""
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.dirname(HERE))
from jobs import run  # noqa: E402

ddprun, root, *parts = sys.argv[1:]
RANKS = os.environ.get("DDPRUN_TEST_RANKS")


def version():
    import importlib.metadata

    return tuple(int(part) for part in importlib.metadata.version("torch").split("+")[0].split(".")[:2])


def metadata(folder):
    """Writes what an installed package has, so that its entry point is found; from the project's own description."""
    with open(os.path.join(root, "pyproject.toml")) as file:
        points = re.search(r'^\[project\.entry-points\."torch\.distributed\.backends"\].*\n(.+)\n', file.read(), re.M)
    info = os.path.join(folder, "ddprun-0.dist-info")
    os.mkdir(info)
    with open(os.path.join(info, "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\nName: ddprun\nVersion: 0\n")
    with open(os.path.join(info, "entry_points.txt"), "w") as file:
        file.write(f'[torch.distributed.backends]\n{points[1]}\n'.replace('"', ""))


def job(ranks, script, *arguments, options=(), exit_code=0, **variables):
    """Runs a job of ranks of this Python. Returns its output."""
    with tempfile.TemporaryDirectory() as folder:
        metadata(folder)
        environment = {"PYTHON_EXEC": sys.executable, "OMP_NUM_THREADS": "1",
                       "PYTHONPATH": os.pathsep.join([folder, os.path.join(root, "runtime/python")]),
                       "PATH": os.path.dirname(os.path.abspath(ddprun)) + os.pathsep + os.environ["PATH"], **variables}
        out, err = run(ddprun, *options, "--nproc_per_node", ranks, os.path.join(HERE, script), *arguments,
                       environment=environment, patience=300, exit_code=exit_code)
    return out, err


def compare(programs, ranks, *words, **variables):
    for number in RANKS.split() if RANKS else [ranks]:
        warm = "torch,torch._dynamo,torch.distributed.fsdp" if programs == "training" else "torch"
        out, err = job(number, "worker.py", programs, *words, options=("--preload", warm), **variables)
        ended = re.findall(r"^rank \d+: (\d+) programs, 0 failed$", out, re.MULTILINE)
        assert len(ended) == int(number) and int(ended[0]) > 0, f"{out}\n{err}"
        print(f"{programs} of {number} ranks, {variables}: {ended[0]} programs equal Gloo's")


def live(names, ranks=2, *arguments, **variables):
    out, err = job(ranks, "lives.py", names, *arguments, options=("--preload", "torch"), **variables)
    for name in names.split(","):
        assert out.count(f"{name}: rank ") == ranks, f"{out}\n{err}"
    print(f"{names}: as promised")


def lives():
    if version() >= (2, 14):
        live("found_by_its_name")
        live("found_by_its_name", TORCH_DISTRIBUTED_DEBUG="DETAIL")
    live("gloo_is_served") if version() >= (2, 14) else None
    live("beside_gloo", 3)
    with tempfile.TemporaryDirectory() as folder:
        in_one_job = "stores,again,refused,profiled,beside_another_devices_backend,old_calls,timeouts,ends_without_destroy"
        live(in_one_job, 2, folder)
    out, err = job(2, "lives.py", "dead_peer", options=("--preload", "torch"), exit_code=137)
    assert re.search(r"^rank 0 got: .*rank 1 on node .* was killed by SIGKILL$", out, re.MULTILINE), f"{out}\n{err}"


def own_tests():
    """Runs some of PyTorch's own tests, or all with DDPRUN_TEST_ALL=1. Exits with 77 where what they need is missing."""
    some = [] if os.environ.get("DDPRUN_TEST_ALL") else ["some"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1",
                   "PYTHONPATH": os.pathsep.join([os.path.join(root, "runtime/python"), os.environ.get("PYTHONPATH", "")]),
                   "PATH": os.path.dirname(os.path.abspath(ddprun)) + os.pathsep + os.environ["PATH"]}
    words = [sys.executable, os.path.join(HERE, "own_tests.py"), "served" if version() >= (2, 14) else "ddp", "3", *some]
    done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=3000)
    print(done.stdout)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        sys.exit(done.returncode)


for part in parts if parts != ["all"] else ["operations", "training", "detail", "lives"]:
    if part == "operations":
        compare("operations", 4)
    elif part == "training":
        compare("training", 2)
    elif part == "detail":
        compare("operations", 2, "all_", "reduce_scatter", "recv", "objects", TORCH_DISTRIBUTED_DEBUG="DETAIL")
        compare("training", 2, TORCH_DISTRIBUTED_DEBUG="DETAIL")
    elif part == "own_tests":
        own_tests()
    else:
        lives()
