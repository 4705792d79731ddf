# SPDX-License-Identifier: BSD-3-Clause
"""A folder with bin/ and lib/ that holds the files that ship, and beside them the programs that measure them."""
import glob
import os
import shutil

LIBRARIES = ["lib/libddp.so", "lib/libddp_training.so"]
SHIPPED = ["bin/ddprun", "bin/ddp_store", *(f"{name}.1" for name in LIBRARIES)]
# What does not ship, from another build: the programs that measure with their libraries, and the backends that libddp opens.
BESIDE = ["bin/ddp_bench*", "bin/bench_worker*", "bin/train", "lib/*.so", "lib/mpich/*.so"]


def why_not(root):
    missing = [name for name in SHIPPED if not os.path.exists(os.path.join(root, "build/portable", name))]
    return f"build/portable has no {missing[0]}: scripts/packaging/portable builds it" if missing else ""


def assemble(root, beside):
    """Makes build/shipped of build/portable and of the build `beside`, and returns it."""
    folder = os.path.join(root, "build/shipped")
    shutil.rmtree(folder, ignore_errors=True)
    files = [(beside, os.path.relpath(path, beside)) for name in BESIDE for path in glob.glob(os.path.join(beside, name))]
    files = [file for file in files if file[1] not in LIBRARIES]
    files += [(os.path.join(root, "build/portable"), name) for name in SHIPPED]
    for build, name in files:
        os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
        shutil.copy2(os.path.join(build, name), os.path.join(folder, name))  # not a link: each finds libddp beside itself
    for name in LIBRARIES:
        os.symlink(f"{os.path.basename(name)}.1", os.path.join(folder, name))
    return folder
