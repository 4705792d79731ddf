#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Error files under ddprun and the real torchrun: the same worker leaves the same record for an outer launcher, each
launcher explains a failure below the other one, and torchrun's report describes a crash in libddp's words.

usage: test_error_files.py DDPRUN CRASHING_WORKER LIBDDP
"""
import json
import os
import re
import subprocess
import sys
import tempfile

from forked_torchrun import TORCHRUN, ForkedPython
from jobs import Job

DDPRUN, CRASHING_WORKER, LIBDDP = sys.argv[1:]
# --local-addr, because torchrun otherwise needs the machine's name, which not every container resolves.
OPTIONS = ["--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"]

RECORDED = """
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    raise ValueError("loss is \\"NaN\\" \\u00fc")
main()
"""
PLAIN = """
import json, os, sys
json.dump({"message": "plain words", "timestamp": 17}, open(os.environ["TORCHELASTIC_ERROR_FILE"], "w"))
sys.exit(5)
"""
KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


def run(folder, command):
    """Returns exit code, stderr, the record left for the outer launcher, and the record left by the worker."""
    above, logs = os.path.join(folder, "above.json"), os.path.join(folder, "logs")
    environment = {"OMP_NUM_THREADS": "1", "PYTHON_EXEC": sys.executable, "TORCHELASTIC_ERROR_FILE": above}
    with Job(*command[0], *OPTIONS, "--log-dir", logs, *command[1:], environment=environment, patience=200,
             popen=ForkedPython if command[0] is TORCHRUN else subprocess.Popen) as job:
        code, said, left = job.wait(), job.err(), job.left_over()
    assert not left, f"left over: {left}; {said}"
    worker = [os.path.join(at, name) for at, _, names in os.walk(logs) for name in names if name == "error.json"]
    read = lambda path: json.load(open(path)) if os.path.exists(path) else None
    return code, said, read(above), read(worker[0]) if worker else None


def under_each(launchers, script):
    """Returns what `script` leaves under each of the two launchers."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "worker.py")
        with open(path, "w") as file:
            file.write(script)
        results = []
        for launcher in launchers:
            with tempfile.TemporaryDirectory() as own:
                results.append(run(own, [launcher, path]))
        return results


def without_time(record):
    record = json.loads(json.dumps(record))
    timestamp = record["message"]["extraInfo"].pop("timestamp")
    assert re.fullmatch(r"\d{10}", timestamp), timestamp
    return record


BOTH = TORCHRUN, [DDPRUN]
(_, _, theirs, their_worker), (code, said, ours, our_worker), (_, _, forked, _) = under_each(
    [*BOTH, [DDPRUN, "--preload", "torch"]], RECORDED)
assert code == 1, said
assert without_time(ours) == without_time(theirs), f"torchrun: {theirs}\nddprun:   {ours}"
assert without_time(forked) == without_time(ours), f"executed: {ours}\nforked:   {forked}"
for above, worker in (theirs, their_worker), (ours, our_worker):
    worker["message"]["errorCode"] = 1
    assert above == worker, f"above: {above}\nworker: {worker}"
assert said.count('    | ValueError: loss is "NaN" \u00fc\n') == 2, said  # its error file, its stderr
print("ok   @record: the worker's record with errorCode, message and timestamp as they were")

(_, _, theirs, _), (code, said, ours, _) = under_each(BOTH, PLAIN)
assert code == 5 and ours == theirs == {"message": "plain words", "timestamp": 17}, f"{said}\n{theirs}\n{ours}"
assert "    | plain words\n" in said, said
print("ok   the plain format: as it was")

(_, _, theirs, _), (code, said, ours, _) = under_each(BOTH, KILLED)
assert code == 137 and theirs is None, theirs
assert ours["message"]["errorCode"] == -9 and "was killed by SIGKILL" in ours["message"]["message"], ours
print("ok   without an error file: torchrun leaves none, ddprun says what is known")

with tempfile.TemporaryDirectory() as folder:
    script = os.path.join(folder, "worker.py")
    with open(script, "w") as file:
        file.write(RECORDED)
    code, said, above, _ = run(folder, [TORCHRUN, "--no-python", DDPRUN, script])
    report = said[said.index("Root Cause"):]
    assert 'ValueError: loss is "NaN"' in report and above["message"]["errorCode"] == 1, said
print("ok   ddprun below torchrun: torchrun's report has the worker's traceback")
with tempfile.TemporaryDirectory() as folder:
    script = os.path.join(folder, "worker.py")
    with open(script, "w") as file:
        file.write(RECORDED)
    code, said, above, _ = run(folder, [[DDPRUN], "-m", "torch.distributed.run", *OPTIONS, script])
    report = said[said.rindex("failed: rank 0"):]
    assert 'ValueError: loss is "NaN"' in report and above["message"]["errorCode"] == 1, said
print("ok   torchrun below ddprun: ddprun's report has the worker's traceback")

for how, exit_code, words in (("segv", -11, "SIGSEGV at address 0x0"),
                              ("throw", -6, 'uncaught exception std::runtime_error: loss is "NaN"')):
    with tempfile.TemporaryDirectory() as folder:
        code, said, above, _ = run(folder, [TORCHRUN, "--no-python", CRASHING_WORKER, how])
        report = said[said.index("Root Cause"):]
        assert f"exitcode  : {exit_code} " in report and words in report and "(crash_here+0x" in report, said
        assert above["message"]["errorCode"] == exit_code, above
    print(f"ok   a C++ worker under torchrun, {how}: its report has the reason and the backtrace")

CRASH = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
assert library.ddp_failure_handlers_install() == 1
ctypes.string_at(0)
"""
for faulthandler in False, True:
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "worker.py")
        with open(script, "w") as file:
            file.write(("import faulthandler; faulthandler.enable()\n" if faulthandler else "") + CRASH)
        code, said, _, worker = run(folder, [[DDPRUN], script, LIBDDP])
        assert code == 128 + 11, said
        assert ("Fatal Python error: Segmentation fault" in said) == faulthandler, said
        assert (worker is None) == faulthandler, worker
        assert ("its error:\nddprun:     | SIGSEGV at address 0x0\n" in said) != faulthandler, said
    print(f"ok   libddp in Python {'leaves a crash to faulthandler' if faulthandler else 'records a crash'}")
