# SPDX-License-Identifier: BSD-3-Clause
"""Packs what is built in BUILD twice, into FOLDER and elsewhere: the wheels are equal byte for byte, and hold what they
should and nothing else.

usage: wheel_test.py BUILD FOLDER
"""
import email
import os
import re
import subprocess
import sys
import tempfile
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
MAX_BYTES = 6 << 20


def pack(build, folder, umask, **environment):
    """Returns the path of the wheel."""
    subprocess.run([os.path.join(ROOT, "scripts/packaging/wheels"), "--build", build, folder], check=True,
                   preexec_fn=lambda: os.umask(umask), env={**os.environ, **environment})
    (name,) = [name for name in os.listdir(folder) if name.startswith("ddprun-")]
    return os.path.join(folder, name)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def check_content(path):
    wheel = zipfile.ZipFile(path)
    modes = {entry.filename: entry.external_attr >> 16 & 0o777 for entry in wheel.infolist()}
    package = {f"ddprun/{folder}{name}" for folder in ("", "recovery/", "torch/")
               for name in os.listdir(os.path.join(ROOT, "runtime/python/ddprun", folder))
               if name.endswith(".py") or name == "py.typed"}
    (info,) = {name.split("/")[0] for name in modes if ".dist-info/" in name}
    data = info.replace(".dist-info", ".data")
    expected = package | {f"{data}/scripts/ddprun", f"{data}/scripts/ddp_store", "ddprun/lib/libddp.so.1",
                          "ddprun/lib/libddp_training.so.1"}
    expected |= {f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE",
                                               "licenses/THIRD_PARTY.txt")}
    # A build with Gloo has its module; the wheels that are published have not.
    assert set(modes) - {"ddprun/lib/libddp_gloo.so"} == expected, set(modes) ^ expected
    assert all(modes[f"{data}/scripts/{name}"] == 0o755 for name in ("ddprun", "ddp_store")), modes
    metadata = email.message_from_bytes(wheel.read(f"{info}/METADATA"))
    required = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert len(required) == 1 and required[0].startswith("py-spy>=0.4"), required
    assert metadata["Requires-Python"] == ">=3.8", metadata
    assert metadata["License-Expression"] == "BSD-3-Clause", metadata
    points = wheel.read(f"{info}/entry_points.txt").decode()
    assert points.split() == ["[torch.distributed.backends]", "ddp", "=", "ddprun.torch:register"], points
    with open(os.path.join(ROOT, "CMakeLists.txt")) as file:
        assert metadata["Version"] == re.search(r"project\(ddprun VERSION ([0-9.]+)", file.read())[1], metadata
    tags = email.message_from_bytes(wheel.read(f"{info}/WHEEL")).get_all("Tag")
    assert tags == [os.path.basename(path)[:-len(".whl")].split("-", 2)[2]], tags
    assert tags[0].startswith("py3-none-"), tags
    assert os.path.getsize(path) <= MAX_BYTES, os.path.getsize(path)
    # Each library that is copied into the programs has its licence there.
    said = subprocess.run([os.path.join(sys.argv[1], "bin/ddprun"), "--print", "versions"], check=True,
                          stdout=subprocess.PIPE, universal_newlines=True).stdout
    libraries = {word.split()[0] for line in said.splitlines() if line.startswith("copied into ")
                 for word in line.split(": ")[1].split(", ")}
    licences = wheel.read(f"{info}/licenses/THIRD_PARTY.txt").decode()
    assert len(libraries) > 6, said
    missing = [library for library in libraries if library not in licences]
    assert not missing, missing


def main():
    build, folder = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    for name in os.listdir(folder):
        os.remove(os.path.join(folder, name))
    first = pack(build, folder, 0o022)
    with tempfile.TemporaryDirectory() as other:
        second = pack(build, other, 0o077, TZ="Pacific/Auckland", LC_ALL="C.UTF-8", HOME=other)
        assert os.path.basename(first) == os.path.basename(second), (first, second)
        assert read(first) == read(second), "two wheels of the same build differ"
    check_content(first)


if __name__ == "__main__":
    main()
