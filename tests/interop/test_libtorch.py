# SPDX-License-Identifier: BSD-3-Clause
"""A C++ program that links libtorch and libddp, built with the string ABI that libtorch has.

usage: test_libtorch.py DDPRUN LIBDDP REPOSITORY COMPILER...
"""
import importlib.util
import os
import subprocess
import sys
import tempfile

from jobs import lines_with, run

ddprun, libddp, repository, *compiler = sys.argv[1:]
here = os.path.dirname(os.path.abspath(__file__))
STEPS, BATCH, MOST_RANKS = 20, 8, 4
SCENARIOS = ["plain", "no_sync"]
TOLERANCE = 1e-6


def builder():
    """A function of a source and a program's path, and the string ABI: PyTorch's wheels had the old one up to 2.6."""
    torch = os.path.dirname(importlib.util.find_spec("torch").origin)
    abi = subprocess.run([sys.executable, "-c", "import torch; print(int(torch._C._GLIBCXX_USE_CXX11_ABI))"],
                         stdout=subprocess.PIPE, check=True, text=True).stdout.strip()

    def build(source, program):
        subprocess.run([*compiler, "-std=c++20", "-O0", f"-D_GLIBCXX_USE_CXX11_ABI={abi}", "-Wall", "-Wextra", "-Werror",
                        "-isystem", f"{torch}/include", "-isystem", f"{torch}/include/torch/csrc/api/include",
                        f"-I{repository}/runtime/include", "-c", f"{repository}/{source}", "-o", f"{program}.o"],
                       check=True)
        subprocess.run([compiler[-1], f"{program}.o", "-o", program, f"-L{torch}/lib", "-Wl,--no-as-needed", "-ltorch",
                        "-ltorch_cpu", "-lc10", libddp, f"-Wl,-rpath,{torch}/lib:{os.path.dirname(libddp)}"],
                       check=True)

    return build, abi


def write_inputs(folder):
    """First weights, and for each rank random images whose labels can be learned."""
    import torch
    from libtorch_reference import Net
    from safetensors.torch import save_file
    torch.manual_seed(1)
    net = Net(batch_norm=True, spare_layers=True)
    save_file(dict(net.named_parameters()), f"{folder}/weights.safetensors")
    patterns = torch.randn(10, 1, 28, 28)
    for rank in range(MOST_RANKS):
        labels = torch.randint(10, (2 * STEPS, BATCH))
        images = patterns[labels] + torch.randn(2 * STEPS, BATCH, 1, 28, 28)
        save_file({"images": images, "labels": labels}, f"{folder}/data{rank}.safetensors")


def losses(out):
    """{(scenario, rank, step): loss}"""
    found = {}
    for line in out.splitlines():
        words = line.split()
        if len(words) == 4 and words[0] in SCENARIOS:
            found[words[0], int(words[1]), int(words[2])] = float(words[3])
    return found


with tempfile.TemporaryDirectory() as folder:
    build, abi = builder()
    program = os.path.join(folder, "worker")
    build("tests/interop/libtorch_worker.cpp", program)
    write_inputs(folder)
    for ranks in 2, MOST_RANKS:
        job = [ddprun, "--nproc_per_node", ranks]
        out, err = run(*job, program, folder, "collectives", *SCENARIOS, patience=240)
        ours = losses(out)
        assert sorted(line for line in out.splitlines() if "done" in line) == [
            f"rank {rank} of {ranks} done" for rank in range(ranks)], f"{out}\n{err}"
        assert out.count("not contiguous") == ranks, out
        out, err = run(*job, f"{here}/libtorch_reference.py", folder, *SCENARIOS, patience=240,
                       environment={"PYTHON_EXEC": sys.executable})
        theirs = losses(out)
        assert len(theirs) == len(SCENARIOS) * ranks * STEPS, f"{out}\n{err}"
        assert ours.keys() == theirs.keys(), sorted(theirs.keys() ^ ours.keys())
        for scenario in SCENARIOS:
            apart = max((abs(ours[key] - theirs[key]), key) for key in theirs if key[0] == scenario)
            assert apart[0] <= TOLERANCE, f"{ranks} ranks: {apart}: {ours[apart[1]]} is not {theirs[apart[1]]}"
            first, last = (theirs[scenario, 0, step] for step in (0, STEPS - 1))
            assert last < first, f"{scenario}: the loss went from {first} to {last}"
            print(f"{ranks} ranks, {scenario}: losses at most {apart[0]:.2g} apart, from {first:.3f} to {last:.3f}")

    example = os.path.join(folder, "libtorch")
    build("apps/examples/libtorch.cpp", example)
    out, err = run(ddprun, "--nproc_per_node", 2, example, patience=120)
    right = [int(line.split()[2]) for line in lines_with(out, "right")]
    assert len(right) == 3 and right[0] < right[-1] and right[-1] > 95, f"{out}\n{err}"
print(f"string ABI {abi}")
