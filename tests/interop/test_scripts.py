# SPDX-License-Identifier: BSD-3-Clause
"""Runs ordinary training scripts, unchanged, under ddprun.

usage: test_scripts.py DDPRUN snapshot | module | accelerate | own_port | timer  [OPTION OF DDPRUN...]
"""
import importlib.util
import os
import re
import signal
import sys
import tempfile

from jobs import Job, free_port, lines_with, run

ddprun, what, options = os.path.abspath(sys.argv[1]), sys.argv[2], sys.argv[3:]
workers = os.path.join(os.path.dirname(os.path.abspath(__file__)), "workers")
PYTHON = {"PYTHON_EXEC": sys.executable}


def launch(*arguments, options=options, **how):
    """Runs a job. run() checks that nothing is left: neither workers nor the processes of their DataLoaders."""
    out, err = run(ddprun, *options, *arguments, environment=PYTHON, patience=120, **how)
    assert "--preload" not in err, err  # a refused --preload is quoted
    return out, err


def final_loss(out):
    return re.search(r"^final loss .*$", out, re.MULTILINE)[0]


def snapshot(folder):
    trainer = os.path.join(workers, "snapshot_trainer.py")
    path = os.path.join(folder, "undisturbed.pt")
    out, _ = launch("--nproc_per_node", "2", "-m", "snapshot_trainer", path, cwd=workers,
                    options=options or ["--preload=auto"])
    expected = final_loss(out)
    assert "goes on" not in out, out
    print(f"-m, a module in the current folder: {expected}")

    path = os.path.join(folder, "killed.pt")
    out, err = launch("--nproc_per_node", "2", "--max-restarts", "1", trainer, path, "--die-in", "3")
    assert sorted(lines_with(out, "goes on")) == [f"rank {rank} goes on after epoch 3" for rank in range(2)], out
    assert final_loss(out) == expected, out
    assert "restart 1 of 1: rank 1 on node" in err and "SIGKILL" in err, err
    print("a rank killed in epoch 3: the job went on from the snapshot to the same loss")

    if not options:
        return  # which processes are left at the end does not depend on how they were started
    path = os.path.join(folder, "given_up.pt")
    _, err = launch("--nproc_per_node", "2", trainer, path, "--die-in", "0", exit_code=128 + signal.SIGKILL)
    assert re.search(r"first failure: rank 1 \(", err), err
    print("a rank killed, no restart left: none of the four DataLoader processes is left")


def module(folder):
    """Runs a package by its name, also with the -- that many users write before it."""
    package = os.path.join(folder, "trainer")
    os.mkdir(package)
    files = {"__init__.py": "", "steps.py": "STEPS = 3\n",
             "__main__.py": "import os, sys\nfrom .steps import STEPS\n"
                            "os.write(1, f'rank {os.environ[\"RANK\"]}: {STEPS} steps, {sys.argv[1:]}\\n'.encode())\n"}
    for name, text in files.items():
        with open(os.path.join(package, name), "w") as file:
            file.write(text)
    expected = [f"rank {rank}: 3 steps, ['--lr', '0.1']" for rank in range(2)]
    for arguments in ["-m", "trainer"], ["-m", "--", "trainer"]:
        out, _ = launch("--nproc_per_node", "2", *arguments, "--lr", "0.1", cwd=folder)
        assert sorted(out.splitlines()) == expected, out
        print(f"{' '.join(arguments)}: ok")


def accelerate(_):
    if not importlib.util.find_spec("accelerate"):
        print(f"skipped: {sys.executable} has no accelerate (scripts/test installs it)")
        sys.exit(77)
    out, _ = launch("--nproc_per_node", "2", os.path.join(workers, "accelerate_worker.py"))
    expected = [f"rank {rank} of 2, 4 batches, loss below 0.01: True" for rank in range(2)]
    assert sorted(lines_with(out, "rank ")) == expected, out
    print("accelerate: two ranks share the batches and agree on the weights")


def own_port(_):
    """A script that sets MASTER_PORT itself looks for the store where nobody hosts one. ddprun says what to change."""
    script = os.path.join(workers, "own_port_worker.py")
    for workers_per_node, how in ("2", []), ("1", ["fork"]):
        with Job(ddprun, *options, "--nproc_per_node", workers_per_node, script, free_port(), *how,
                 environment=PYTHON, patience=120) as job:
            job.until(lambda: "where nobody listens" in job.err(), "the line on stderr")
            assert len(lines_with(job.err(), "TORCHELASTIC_USE_AGENT_STORE")) == 1, job.said()
            job.signal(signal.SIGTERM)
            job.wait()
        out, err = launch("--nproc_per_node", workers_per_node, script, str(free_port()), "alone", *how)
        assert sorted(out.splitlines()) == [f"rank {rank} of 2 is through" for rank in range(2)], out
        assert "nobody listens" not in err, err
        print(f"{' '.join(['a port of its own', *how])}: told what to change, and it works with that change")


def timer(folder):
    """A script with PyTorch's own timers: who is stuck is killed, and the job restarts."""
    fifo = os.path.join(folder, "timers")
    script = os.path.join(workers, "timer_worker.py")
    PYTHON.update(TORCHELASTIC_ENABLE_FILE_TIMER="1", TORCHELASTIC_TIMER_FILE=fifo)
    out, err = launch("--nproc_per_node", "2", "--max-restarts", "1", script)
    assert sorted(out.splitlines()) == [f"rank {rank} is through" for rank in range(2)], out
    assert len(lines_with(err, 'the timer of scope "stuck" expired')) == 2, err  # when it expires, and at the restart
    assert len(lines_with(err, "restart 1 of 1: rank 1 on node")) == 1, err
    assert not os.path.exists(fifo), fifo
    print("a worker stuck in a scope: killed, restarted, and through")


with tempfile.TemporaryDirectory() as folder:
    {"snapshot": snapshot, "module": module, "accelerate": accelerate, "own_port": own_port,
     "timer": timer}[what](folder)
