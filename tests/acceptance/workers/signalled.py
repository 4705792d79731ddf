# SPDX-License-Identifier: BSD-3-Clause
"""Waits for one of these signals, writes its name and ends. usage: signalled.py FOLDER NAME..."""
import os
import signal
import sys
import time

folder, names = sys.argv[1], sys.argv[2:]
rank = os.environ["RANK"]


def write(what):
    with open(os.path.join(folder, rank), "a") as file:
        file.write(what + "\n")


def got(number, _):
    write(signal.Signals(number).name)
    sys.exit(0)


for name in names:
    signal.signal(signal.Signals[name], got)
write(os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"])
time.sleep(120)
