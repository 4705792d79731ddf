# SPDX-License-Identifier: BSD-3-Clause
"""find_binary() and `python -m ddprun`."""
import os
import shutil

from callers import PACKAGE
from promises import promise

# Where the package is, and its programs, in what installers make.
TREES = {
    "venv/lib/python3.9/site-packages": "venv/bin",
    "venv64/lib64/python3.9/site-packages": "venv64/bin",
    "debian/lib/python3.9/dist-packages": "debian/bin",  # sysconfig says /usr/bin there, pip uses /usr/local
    "deb/lib/python3/dist-packages": "deb/bin",
    "target": "target/bin",
}


@promise("find_binary finds the programs that were installed with the package in every kind of tree")
def _(callers):
    for package, programs in TREES.items():
        shutil.copytree(os.path.join(PACKAGE, "ddprun"), callers.path(package, "ddprun"),
                        ignore=shutil.ignore_patterns("__pycache__"))
        paths = [callers.write(f"{programs}/{name}", "#!/bin/sh\n", 0o755) for name in ("ddprun", "ddp_store")]
        found = callers.run("-c", "import ddprun; print(ddprun.find_binary(), ddprun.find_binary('ddp_store'))",
                            environment={"PYTHONPATH": callers.path(package)})
        assert found.split() == paths, found


@promise("find_binary falls back on PATH, and without a program says where it looked and what to do")
def _(callers):
    assert callers.run("-c", "import ddprun; print(ddprun.find_binary())").strip() == callers.ddprun
    job = callers.start("-c", "import ddprun; ddprun.find_binary()", environment={"PATH": callers.folder})
    assert job.wait() == 1, job.said()
    last = job.err().splitlines()[-1]
    assert last.startswith("FileNotFoundError: the program 'ddprun' "), last
    assert callers.folder in last and "pip install --force-reinstall ddprun" in last, last


@promise("python -m ddprun is ddprun, with workers of that Python unless PYTHON_EXEC says otherwise")
def _(callers):
    callers.write("which.py", "import sys; print(sys.executable)\n")
    arguments = ("-m", "ddprun", "--nproc_per_node", "1", "-m", "which")
    environment = {"PYTHONPATH": PACKAGE + os.pathsep + callers.folder}
    assert callers.run(*arguments, environment=environment).strip() == callers.ask("sys.executable")
    other = callers.write("other/python", f'#!/bin/sh\necho other\nexec {callers.python} "$@"\n', 0o755)
    said = callers.run(*arguments, environment={**environment, "PYTHON_EXEC": other})
    assert said.split()[0] == "other", said
    assert callers.run("-m", "ddprun", "no_such_program", code=127) == ""
