# SPDX-License-Identifier: BSD-3-Clause
"""`python -m ddprun` is ddprun, with workers of this Python."""
import os
import sys

from ddprun import find_binary


def main() -> None:
    """Becomes ddprun, with this process's arguments. Returns only if that fails, with an exception."""
    binary = find_binary()
    if sys.executable:
        os.environ.setdefault("PYTHON_EXEC", sys.executable)
    os.execv(binary, [binary, *sys.argv[1:]])


if __name__ == "__main__":
    main()
