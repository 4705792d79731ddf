# SPDX-License-Identifier: BSD-3-Clause
"""With --gloo=ddp or PET_GLOO=ddp, scripts that ask torch.distributed for "gloo" get the backend "ddp", and notice
nothing else.

usage: test_gloo_option.py DDPRUN ROOT
"""
import os
import re
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.dirname(HERE))
from jobs import run  # noqa: E402

ddprun, root = sys.argv[1:]
SCRIPT = os.path.join(HERE, "asks_for_gloo.py")
SAYS_SO = 'ddprun: the backend "gloo" of torch.distributed is served by "ddp"\n'
PACKAGE = os.path.join(root, "runtime/python")


def job(*words, ranks=2, folders=(PACKAGE,), exit_code=0, **variables):
    """Runs a job. Returns what each rank's lines say, sorted, and what is on stderr."""
    environment = {"PYTHON_EXEC": sys.executable, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore",
                   "PYTHONPATH": os.pathsep.join(folders),
                   "PATH": os.path.dirname(os.path.abspath(ddprun)) + os.pathsep + os.environ["PATH"], **variables}
    out, err = run(ddprun, "--nproc_per_node", ranks, *words, environment=environment, patience=300,
                   exit_code=exit_code)
    return sorted(out.splitlines()), err


def version():
    import importlib.metadata

    return tuple(int(part) for part in importlib.metadata.version("torch").split("+")[0].split(".")[:2])


if version() < (2, 14):
    said, err = job("--gloo=ddp", SCRIPT, "train", "fork")
    assert len(re.findall("--gloo=ddp: gloo stays PyTorch's own, since PyTorch .* is older than 2.14\n", err)) == 1, err
    assert said[1] == "0 train: served by torch", said
    sys.exit()

own, err = job("--preload=torch,torch._dynamo", SCRIPT, "train", "fork")
assert "ddprun:" not in err and own.count("0 train: served by torch") == 1, (own, err)
expected = [line.replace("by torch", "by ddprun") for line in own]
assert len(expected) == 4 and len(expected[0].split()) == 2 + 4, expected
for words, variables in (
    (["--gloo=ddp", SCRIPT, "train", "fork"], {}),
    (["--gloo=ddp", "--preload=torch,torch._dynamo", "-m", "asks_for_gloo", "train", "spawn"],
     {"folders": (PACKAGE, HERE)}),
):
    said, err = job(*words, **variables)
    assert said == expected and err.count(SAYS_SO) == 1 and "without it" not in err, (words, said, expected, err)
print("DDP learns the same over both, with DataLoaders, as a script, a module and forked")

said, err = job("--preload=torch", SCRIPT, "groups", PET_GLOO="ddp")
assert said == [f"{rank} groups: served by ddprun ddprun" for rank in range(2)] and err.count(SAYS_SO) == 1, (said, err)
print("groups of every kind are ours, and what ours does not do is Gloo's")

with tempfile.TemporaryDirectory() as folder:
    with open(os.path.join(folder, "sitecustomize.py"), "w") as file:
        file.write("WORDS = 'the user\\'s own'\nprint('runs', flush=True)\n")
    said, err = job("--gloo=ddp", SCRIPT, "no_group", folders=(folder,))
    assert said == ["0 no_group: the user's own", "1 no_group: the user's own", "runs", "runs"] and not err, (said, err)
    print("a sitecustomize of the user's runs, and nothing is imported that the script does not import")

    said, err = job("--gloo=ddp", SCRIPT, "spawns", folder, ranks=1)
    assert said == ["0 spawns: served by ddprun"] * 2 and err.count(SAYS_SO) == 1, (said, err)
    print("processes that a worker spawns get ours, too")

said, err = job("--gloo=ddp", SCRIPT, "groups", ranks=1, folders=(), exit_code=1)
assert f'which {sys.executable} lacks: {sys.executable} -m pip install ddprun, or leave --gloo=ddp' in err, err
print("without the package ddprun the job ends with what to install")
