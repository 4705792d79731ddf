# SPDX-License-Identifier: BSD-3-Clause
"""Finds the files that the wheel has put beside this package. Imports nothing but os and sys: it is on every path."""
import os
import sys

_FOLDER = os.path.dirname(os.path.abspath(__file__))


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _script_folders() -> "list[str]":
    """Returns the folders that may hold ddprun's programs, the likeliest first.

    pip and its like install programs into the bin folder of the tree that the package is in, wherever that is:
    PREFIX/lib/python3.X/site-packages and PREFIX/bin, or with --target DIR and DIR/bin. sysconfig is asked after that,
    for an editable install: on Debian before Python 3.10 it names a folder that pip does not use (uv issue 10018).
    """
    folders = []
    parent = _FOLDER
    for _ in range(4):
        parent = os.path.dirname(parent)
        folders.append(os.path.join(parent, "bin"))
    import sysconfig

    folders.append(sysconfig.get_path("scripts"))
    if "posix_user" in sysconfig.get_scheme_names():
        folders.append(sysconfig.get_path("scripts", "posix_user"))
    return folders + os.environ.get("PATH", os.defpath).split(os.pathsep)


def find_binary(name: str = "ddprun") -> str:
    """Returns the absolute path of a program of this package: `ddprun` or `ddp_store`.

    It is the one that was installed with this package; only if that is not there, the first of this name in PATH.
    Raises FileNotFoundError, with the folders that were searched, if there is none.
    """
    tried = []
    for folder in _script_folders():
        path = os.path.join(os.path.abspath(folder or "."), name)
        if _is_program(path):
            return path
        if os.path.dirname(path) not in tried:
            tried.append(os.path.dirname(path))
    raise FileNotFoundError(
        f"the program {name!r} of the Python package ddprun ({_FOLDER}) is in none of {', '.join(tried)}; "
        f"install the package again: {sys.executable or 'python3'} -m pip install --force-reinstall ddprun"
    )


def find_library() -> str:
    """Returns the absolute path of libddp, the library for workers in C and C++, that came with this package.

    Raises FileNotFoundError if it is not there.
    """
    path = os.path.join(_FOLDER, "lib", "libddp.so.1")
    if os.path.isfile(path):
        return path
    raise FileNotFoundError(f"libddp is not at {path}; install the package again, or use the libddp of your system")
