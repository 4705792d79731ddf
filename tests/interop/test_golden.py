# SPDX-License-Identifier: BSD-3-Clause
"""Checks that the installed PyTorch still computes the results in the committed golden files.

    python test_golden.py path/to/tests/runtime/training/golden/ddp

Uses worlds of one and two ranks, where a sum has only one order, so that the bits do not depend on the machine.
"""

import os
import sys
import tempfile

import numpy
from safetensors import safe_open

import jobs

committed = sys.argv[1]
WORLDS = ["1", "2"]
# These multiply matrices, for which builds of PyTorch may add in different orders.
ROUNDED = ("sgd", "momentum")


def tensors_of(path):
    with safe_open(path, framework="numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}


def compare(folder, file):
    made, kept = tensors_of(os.path.join(folder, file)), tensors_of(os.path.join(committed, file))
    assert made.keys() == kept.keys(), f"{file}: {sorted(made.keys() ^ kept.keys())}"
    for name, values in made.items():
        what = f"{file}, {name}: run make_golden.py again, or find out what PyTorch has changed"
        if name.startswith(ROUNDED):
            largest = numpy.abs(kept[name]).max()
            numpy.testing.assert_allclose(values, kept[name], rtol=1e-6, atol=1e-6 * largest, err_msg=what)
        else:
            numpy.testing.assert_array_equal(values, kept[name], err_msg=what, strict=True)
    return len(made)


def main():
    with tempfile.TemporaryDirectory() as folder:
        jobs.run(sys.executable, os.path.join(committed, "make_golden.py"), folder, *WORLDS, patience=300)
        files = ["inputs.safetensors"] + [f"world_{size}.safetensors" for size in WORLDS]
        print(sum(compare(folder, file) for file in files), "tensors as they are committed")


if __name__ == "__main__":
    main()
