#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks that ddprun takes the options of every `ddprun --...` that a page for users shows, in a block or within a
sentence. Each command is given to ddprun behind --print environment, which reads all options and starts nothing.

usage: commands_test.py DDPRUN REPOSITORY
"""
import os
import re
import shlex
import subprocess
import sys
import tempfile

from links_test import CODE, FENCE, pages

COMMAND = re.compile(r"(?:^|[\s/$])ddprun (-(?!- ).*)")
END_OF_COMMAND = re.compile(r"\s+#\s.*|\s(?:[&|;]|2?>).*|[;,].*$")
# What stands for something else: `ddprun --nnodes 2 ...`, and the values of benchmarks that the page does not fix.
NO_COMMAND = re.compile(r"\.\.\.|--(?:make-secret|help|version|print-\w+)\b|\b(?:NODE|PORT|N|SECONDS)\b|\$\w")


def texts(page):
    """The lines of blocks, with those that end in a backslash joined, and what stands in backticks in sentences."""
    blocks = [found.group(0) for found in FENCE.finditer(page)]
    rest = FENCE.sub("", page)
    blocks += re.findall(r"(?m)^ {4,}(?![*|-]).*$", rest)
    yield from (line for block in blocks for line in re.sub(r"\\\n\s*", "", block).splitlines())
    yield from (" ".join(code.group(2).split()) for code in CODE.finditer(rest))


def commands(page):
    for text in texts(page):
        found = COMMAND.search(text)
        if found and not text.lstrip().startswith("ddprun:"):
            command = END_OF_COMMAND.sub("", found.group(1)).strip()
            if " " in command and not NO_COMMAND.search(command):
                yield command


def refusal(ddprun, command, folder):
    """What ddprun says if it does not take these options; empty if it does."""
    words = [ddprun, "--print", "environment", *shlex.split(command)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "DDPRUN_"))}
    run = subprocess.run(words, cwd=folder, env=clean, capture_output=True, text=True, timeout=60, check=False)
    return "" if run.returncode == 0 else run.stderr.strip().splitlines()[0]


def main(ddprun, root):
    checked, bad = set(), 0
    with tempfile.TemporaryDirectory() as folder:
        for page in sorted(pages(root)):
            if "/internals/" in page:
                continue
            with open(page) as file:
                text = file.read()
            for command in commands(text):
                if command in checked:
                    continue
                checked.add(command)
                why = refusal(ddprun, command, folder)
                if why:
                    print(f"{os.path.relpath(page, root)}: ddprun {command}\n    {why}")
                    bad += 1
    print(f"{len(checked)} commands, {bad} of them refused")
    return 1 if bad or len(checked) < 30 else 0


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])))
