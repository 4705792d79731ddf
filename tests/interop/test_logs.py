#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Logs under ddprun and the real torchrun: the same command gives the same lines on the console, the same files with
the same bytes, and the same event records, except where torchrun is wrong, and that ddprun shows only the newest state
of a line that a carriage return begins again.

usage: test_logs.py DDPRUN
"""
import json
import os
import subprocess
import sys
import tempfile

from forked_torchrun import TORCHRUN, ForkedPython
from jobs import Job

DDPRUN = sys.argv[1]

# Every line on the console has its rank, so that the order of lines does not matter. All output fits into a page of
# memory: of more, torchrun may read a part first, and then break it in the middle of a line.
WORKER = r"""
import os, sys
rank = os.environ["RANK"]
out, err = sys.stdout.buffer, sys.stderr.buffer
for i in range(120):
    out.write(f"out {i} of rank {rank}, a word\n".encode())
    err.write(f"err {i} of rank {rank}, loss\n".encode())
out.write(f"windows {rank}\r\nbar 1 of {rank}\rbar 2 of {rank}\n\n".encode())
out.write(f"comma a,b of rank {rank}\n".encode())
sys.exit(int(sys.argv[1]))
"""
CASES = {
    "nothing": [],
    "-r 3": ["-r", "3"],
    "-r1": ["-r1"],
    "--redirect=3 --tee=3": ["--redirect=3", "--tee=3"],
    "--tee map, --redirects map": ["--tee", "0:1,1:2", "--redirects", "0:2,1:0"],
    "a map names ranks that are not there": ["-t", "0:3,5:3"],
    "prefix": ["-t", "3", "--log-line-prefix-template", "$$[${role_name}-$local_rank:${rank} ${pid} $] "],
    "filter": ["-t", "1", "--local-ranks-filter", "1"],
    "filter of what is not teed": ["--local_ranks_filter=0"],
    "duplicates": ["-t", "3", "--duplicate-stdout-filters", "a word,a,,b", "--duplicate_stderr_filters=loss"],
    "duplicates of one rank": ["-t", "0:1", "-r", "1:1", "--duplicate-stdout-filters=a word"],
    "duplicates with nothing teed": ["-r", "1", "--duplicate-stdout-filters=a word"],
}


def files_of(folder):
    """Returns the files of the only run in the folder: {path: bytes}."""
    (run,) = os.listdir(folder)
    assert run.startswith("job_"), run
    root = os.path.join(folder, run)
    return {os.path.relpath(os.path.join(at, name), root): open(os.path.join(at, name), "rb").read()
            for at, _, names in os.walk(root) for name in names}


def run(launcher, options, environment, exit_code=0):
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "worker.py")
        with open(script, "w") as file:
            file.write(WORKER)
        logs = os.path.join(folder, "logs")
        # --local-addr, because torchrun otherwise needs the machine's name, which not every container resolves.
        command = [*launcher, "--nproc-per-node=2", "--rdzv-id=job", "--rdzv-backend=c10d",
                   "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1", *options]
        if not any(option.startswith("--log-dir") for option in options):
            command.append("--log-dir=" + logs)
        with Job(*command, script, exit_code, patience=120, popen=ForkedPython if launcher is TORCHRUN else subprocess.Popen,
                 environment={"OMP_NUM_THREADS": "1", "PYTHON_EXEC": sys.executable, **environment}) as job:
            code, out, err = job.wait(), job.out_bytes(), job.err_bytes()
        lines = sorted(out.split(b"\n")), sorted(l for l in err.split(b"\n") if b" of rank " in l)
        files = files_of(logs) if os.path.exists(logs) else {}
        filtered = {name: sorted(files.pop(name).split(b"\n")) for name in list(files) if "filtered" in name}
        return {"exit code": code, "stdout": lines[0], "stderr": lines[1], "files": files,
                "filtered files": filtered}, err


def compare(what, options, environment):
    theirs, said = run(TORCHRUN, options, environment)
    ours, _ = run([DDPRUN], options, environment)
    assert theirs["exit code"] == 0, said.decode()
    theirs["stdout"] = [line for line in theirs["stdout"] if b"bar 1 of" not in line or b"\r" in line]
    for part, expected in theirs.items():
        assert ours[part] == expected, f"{what}: {part}\ntorchrun: {expected}\nddprun:   {ours[part]}"
    print(f"ok   {what}: {len(ours['files']) + len(ours['filtered files'])} files")


def records(launcher, options, exit_code):
    """Returns each worker's states in the last attempt, and the names in the records."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "events")
        with_file = [option.replace("FILE", file) for option in options]
        _, said = run(launcher, [*with_file, "-r3"], {}, exit_code)
        lines = open(file).read() if os.path.exists(file) else said.decode()
    events = [json.loads(line) for line in lines.splitlines() if line.startswith('{"name": "torchelastic.')]
    states, names = {}, set()
    for event in events:
        inner = event["metadata"].pop("metadata")
        names |= set(event) | set(event["metadata"]) | set(json.loads(inner))
        if event["source"] == "WORKER":
            states.setdefault(event["metadata"]["global_rank"], []).append(event["metadata"]["state"])
    return states, names


for what, options in CASES.items():
    compare(what, options, {})
compare("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", ["-t3"], {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[rank${rank}]: "})
compare("PET_ variables", [], {"PET_TEE": "0:3", "PET_REDIRECTS": "1:3", "PET_LOG_LINE_PREFIX_TEMPLATE": "${rank}> ",
                               "PET_DUPLICATE_STDOUT_FILTERS": "word"})
compare("--log-dir=/dev/null", ["--log-dir=/dev/null", "-r", "1", "-t", "2"], {})
for exit_code in (0, 7):
    theirs = records(TORCHRUN, ["--event-log-handler=console"], exit_code)
    for option in ("--event-log-handler=console", "--event-log-file=FILE"):
        ours = records([DDPRUN], [option], exit_code)
        # torchrun calls a worker that was ended because of another's failure FAILED, ddprun TERMINATED.
        ours[0].update({rank: [s.replace("TERMINATED", "FAILED") for s in states] for rank, states in ours[0].items()})
        assert ours == theirs, f"{option}, exit code {exit_code}\ntorchrun: {theirs}\nddprun:   {ours}"
        print(f"ok   event records of workers that exit with {exit_code}: {option}")
