# SPDX-License-Identifier: BSD-3-Clause
"""A C++ program that links libtorch and libddp, built with libtorch's string ABI.

usage: test_libtorch.py DDPRUN LIBDDP REPOSITORY COMPILER...
"""
import os
import re
import subprocess
import sys
import tempfile

import torch
from jobs import lines_with, run
from safetensors.torch import save_file

here = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(here, "workers"))
from libtorch_reference import STEPS, SCENARIOS, Net  # noqa: E402

ddprun, libddp, repository, *compiler = sys.argv[1:]
BATCH, MOST_RANKS = 8, 4
TOLERANCE = 1e-6
if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 15):
    # PyTorch 2.2.2 and 2.15.0 give different results here. Releases between them have not been compared.
    del SCENARIOS["unused_views"]
COARSE = {"fp16": 1e-3}  # PyTorch's Gloo rounds at every addition, libddp once


def builder():
    """Returns a function that compiles a source to a program. PyTorch's wheels had the old string ABI up to 2.6."""
    wheel = os.path.dirname(torch.__file__)
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    # Only needed for releases that give a stream's handle in no other way.
    cuda = ["-Wl,--as-needed", "-lc10_cuda"] if os.path.exists(f"{wheel}/lib/libc10_cuda.so") else []

    def build(source, program):
        subprocess.run([*compiler, "-std=c++20", "-O0", f"-D_GLIBCXX_USE_CXX11_ABI={abi}", "-Wall", "-Wextra", "-Werror",
                        "-isystem", f"{wheel}/include", "-isystem", f"{wheel}/include/torch/csrc/api/include",
                        f"-I{repository}/runtime/include", "-c", source, "-o", f"{program}.o"],
                       check=True)
        subprocess.run([compiler[-1], f"{program}.o", "-o", program, f"-L{wheel}/lib", "-Wl,--no-as-needed", "-ltorch",
                        "-ltorch_cpu", "-lc10", *cuda, libddp, f"-Wl,-rpath,{wheel}/lib:{os.path.dirname(libddp)}"],
                       check=True)

    return build, abi


def write_inputs(folder):
    """Writes initial weights, and for each rank random images with labels that can be learned."""
    torch.manual_seed(1)
    net = Net(batch_norm=True, spare_layers=True)
    save_file(dict(net.named_parameters()), f"{folder}/weights.safetensors")
    patterns = torch.randn(10, 1, 28, 28)
    for rank in range(MOST_RANKS):
        labels = torch.randint(10, (2 * STEPS, BATCH))
        images = patterns[labels] + torch.randn(2 * STEPS, BATCH, 1, 28, 28)
        save_file({"images": images, "labels": labels}, f"{folder}/data{rank}.safetensors")


def losses(out):
    """Returns {(scenario, rank, step): loss}."""
    found = {}
    for line in out.splitlines():
        words = line.split()
        if len(words) == 4 and words[0] in SCENARIOS:
            found[words[0], int(words[1]), int(words[2])] = float(words[3])
    return found


# Error messages on every rank for modules that cannot work.
MISTAKES = {
    "shapes": r"parameter 0 \(weight\) has .*\[4, 3\] on rank 0 but .*\[5, 3\] on rank 1",
    "frozen shapes": r"\(table\) has .*\[2, 2\] on rank 0 but .*\[2, 3\] on rank 1",
    "layouts": r"\(weight\) has .*\[4, 3, 5, 5\] on rank 0 but .*\[4, 5, 5, 3\] on rank 1",
    "forgotten": r"\(sometimes.weight\).*\(never.bias\) were never marked ready",
    "sparse": r"the gradient of weight is sparse",
    "nothing": r"no parameter that requires a gradient",
    "moved": r"running_mean is no longer where it was",
    "overlap": r"ones is sparse, or its elements overlap",
}


def check_training(program, ranks, folder):
    """Compares losses with PyTorch's, for each step and rank."""
    job = [ddprun, "--nproc_per_node", ranks]
    out, err = run(*job, program, folder, *SCENARIOS, patience=300)
    ours = losses(out)
    out, err = run(*job, f"{here}/workers/libtorch_reference.py", folder, *SCENARIOS, patience=300,
                   environment={"PYTHON_EXEC": sys.executable})
    theirs = losses(out)
    assert {key[0] for key in theirs} == set(SCENARIOS), f"{out}\n{err}"
    assert ours.keys() == theirs.keys(), sorted(theirs.keys() ^ ours.keys())
    for scenario in SCENARIOS:
        apart, where = max((abs(ours[key] - theirs[key]), key) for key in theirs if key[0] == scenario)
        assert apart <= COARSE.get(scenario, TOLERANCE), f"{ranks} ranks, {where}: {ours[where]} is not {theirs[where]}"
        first, last = (theirs[scenario, 0, step] for step in (0, STEPS - 1))
        assert last < first, f"{scenario}: the loss went from {first} to {last}"
        print(f"{ranks} ranks, {scenario}: losses at most {apart:.2g} apart, from {first:.3f} to {last:.3f}")


def check_words(program, folder):
    """Runs collectives on tensors, and checks the messages for mistakes."""
    ranks = 3
    out, err = run(ddprun, "--nproc_per_node", ranks, program, folder, "collectives", "early_buckets",
                   "part_of_outputs", "mistakes", patience=120)
    assert sorted(lines_with(out, "done")) == [f"rank {rank} of {ranks} done" for rank in range(ranks)], f"{out}\n{err}"
    for words in "not contiguous", "early buckets", "part of the outputs":
        assert len(lines_with(out, words)) == ranks, f"{words}: {out}\n{err}"
    for mistake, words in MISTAKES.items():
        said = [line for line in out.splitlines() if line.startswith(f"{mistake}: ")]
        assert len(said) == ranks and all(re.search(words, line) for line in said), f"{mistake}: {said}"


def write_snippet(source, expected):
    """Checks the libtorch program in docs/library/training.md, and the output below it."""
    with open(f"{repository}/docs/library/training.md") as document:
        program, output = re.search(r"^```c\+\+\n(.*?)^```\n+```text\n(.*?)^```$", document.read(), re.S | re.M).groups()
    for path, text in (source, program), (expected, output):
        with open(path, "w") as file:
            file.write(text)


def check_example(program):
    out, err = run(ddprun, "--nproc_per_node", 2, program, patience=120)
    right = [int(line.split()[2]) for line in lines_with(out, "right")]
    assert len(right) == 3 and right[0] < right[-1] and right[-1] > 95, f"{out}\n{err}"


with tempfile.TemporaryDirectory() as folder:
    build, abi = builder()
    worker, example = (os.path.join(folder, name) for name in ("worker", "example"))
    snippet = os.path.join(os.path.dirname(libddp), "libtorch_snippet")  # ccache knows a file by its path
    build(f"{here}/workers/libtorch_worker.cpp", worker)
    build(f"{repository}/apps/examples/libtorch.cpp", example)
    write_snippet(f"{snippet}.cpp", f"{snippet}.txt")
    build(f"{snippet}.cpp", snippet)
    write_inputs(folder)
    check_words(worker, folder)
    for ranks in 2, MOST_RANKS:
        check_training(worker, ranks, folder)
    check_example(example)
    subprocess.run([f"{repository}/tests/docs/snippet_test.sh", ddprun, snippet, f"{snippet}.txt"], check=True)
print(f"string ABI {abi}")
