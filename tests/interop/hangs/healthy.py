# SPDX-License-Identifier: BSD-3-Clause
"""A job without a hang, in which little is to be seen of that: nothing is printed within a phase, and each phase takes
several times as long as --hang-timeout. Only rank 0 works in some of them. DDPRUN_HEALTHY_SECONDS is the length of a
phase."""
import ast
import os
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist

SECONDS = float(os.environ.get("DDPRUN_HEALTHY_SECONDS", "4"))


def phase_ends_after(work, everybody):
    """Repeats work() for the time of a phase, on rank 0 or on all ranks; then all meet."""
    end = time.monotonic() + SECONDS
    if dist.get_rank() == 0 and not everybody:
        while time.monotonic() < end:
            work()
    while everybody:
        work()
        late = torch.tensor([time.monotonic() > end])
        dist.broadcast(late, src=0)
        if late:
            break
    dist.barrier()


model = torch.nn.Sequential(torch.nn.Linear(200, 200), torch.nn.ReLU(), torch.nn.Linear(200, 10))


def forward():
    return model(torch.ones(64, 200)).sum()


def validate():
    with torch.no_grad():
        for _ in range(20):
            forward()
    sorted(range(20_000), key=str)


def train():
    forward().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)


def save():
    with tempfile.TemporaryFile() as file:
        for _ in range(50):
            file.write(b"x" * 2**20)
        os.fsync(file.fileno())


def compile_code():
    tree = ast.parse("\n".join(f"def f{i}(x):\n    return [x + {i}, {{'a': x}}, (x, x * {i})]" for i in range(100)))
    exec(compile(ast.unparse(tree), "generated", "exec"), {})


def compile_in_a_process():
    code = "import time; end = time.monotonic() + 3\nwhile time.monotonic() < end: sum(range(10_000))"
    subprocess.run([sys.executable, "-c", code], check=True)


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return sum(len(str(i)) for i in range(5_000_000))


def load():
    for _ in torch.utils.data.DataLoader(Slow(), num_workers=1):
        pass


dist.init_process_group("gloo")
for work, everybody in ((validate, False), (train, True), (save, False), (compile_code, False),
                        (compile_in_a_process, False), (load, False)):
    phase_ends_after(work, everybody)
    if dist.get_rank() == 0:
        print(f"{work.__name__} is over", flush=True)
print("all phases are over", flush=True)
