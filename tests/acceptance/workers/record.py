# SPDX-License-Identifier: BSD-3-Clause
"""A worker that records its environment: appends one line of JSON to a file named after its rank each time it starts.

usage: record.py --touch-file-dir DIR [--hold FILE] [--fail-even | --exit CODE] [--sleep SECONDS] [words...]
"""
import argparse
import json
import os
import sys
import time

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--touch-file-dir", required=True)
parser.add_argument("--hold", help="end when this file is there")
parser.add_argument("--fail-even", action="store_true", help="even ranks end with 1")
parser.add_argument("--exit", type=int, default=0)
parser.add_argument("--sleep", type=float, help="seconds for each rank: rank 1 sleeps so long, rank 0 not at all")
options, words = parser.parse_known_args()

os.makedirs(options.touch_file_dir, exist_ok=True)
line = json.dumps({"environment": dict(os.environ), "words": words, "name": __name__}) + "\n"
file = os.open(os.path.join(options.touch_file_dir, os.environ["RANK"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.write(file, line.encode())

deadline = time.monotonic() + 120
while options.hold and not os.path.exists(options.hold):
    if time.monotonic() > deadline:
        sys.exit("nobody let me go")
    time.sleep(0.02)
if options.sleep:
    time.sleep(options.sleep * int(os.environ["RANK"]))  # ranks are meant to drift apart
if options.fail_even and int(os.environ["RANK"]) % 2 == 0:
    print(f"rank {os.environ['RANK']} fails as it should", file=sys.stderr)
    sys.exit(1)
sys.exit(options.exit)
