# SPDX-License-Identifier: BSD-3-Clause
"""Ignores SIGTERM, with a child that ignores it too. usage: stubborn.py FILE    (written once both ignore it)"""
import os
import signal
import sys
import time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.fork()
with open(sys.argv[1], "a") as file:
    file.write(f"{os.getpid()}\n")
time.sleep(120)
