#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""ddprun under the name torchrun, and the real torchrun: the same command lines give the same exit codes, the same
failures in the same columns, and the same arguments for the workers.

usage: test_torchrun_name.py DDPRUN

Only every third command line is run, unless DDPRUN_TEST_FULL_INTEROP is set. torchrun is forked from this process, which has
PyTorch imported; but for --help, it is a fresh one.
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from forked_torchrun import LAUNCH, TORCHRUN, ForkedPython  # noqa: E402
from jobs import PATIENCE, Job, until  # noqa: E402

FOLDER = tempfile.TemporaryDirectory()
HERE = FOLDER.name
LINK = os.path.join(HERE, "torchrun")
os.symlink(os.path.abspath(sys.argv[1]), LINK)
LAUNCHERS = {
    "torchrun": (TORCHRUN, {}),
    "ddprun": ([LINK], {"PYTHON_EXEC": sys.executable}),
}
SCRIPTS = {
    "show.py": "import json, os, sys\n"
               "sys.stdout.write(json.dumps([os.environ['LOCAL_RANK'], __name__, *sys.argv]) + '\\n')\n",
    "exit.py": "import os, signal, sys\n"
               "sys.exit(int(sys.argv[1])) if os.environ['RANK'] == '0' else signal.pause()\n",
    "die.py": "import os, sys\nos.kill(os.getpid(), int(sys.argv[1]))\n",
    "record.py": "from torch.distributed.elastic.multiprocessing.errors import record\n"
                 "@record\ndef main():\n    raise ValueError('loss is NaN\\nafter step 3')\nmain()\n",
    "raise.py": "import faulthandler\nassert faulthandler.is_enabled()\nraise KeyError('loss')\n",
    "quit.py": "import sys\nsys.exit(eval(sys.argv[1]))\n",
    "wait.py": "import signal\nprint('ready', flush=True)\nsignal.pause()\n",
}
for name, text in SCRIPTS.items():
    with open(os.path.join(HERE, name), "w") as file:
        file.write(text)


def started(command, environment):
    popen = ForkedPython if command[0] == sys.executable else subprocess.Popen
    return Job(*command, environment={"OMP_NUM_THREADS": "1", "TMPDIR": HERE, **environment}, cwd=HERE, patience=120,
               popen=popen)


def ended(job, stop=None):
    """stop: a signal sent to the launcher once a worker has printed `ready`."""
    if stop:
        job.wait_for("^ready$")
        job.signal(stop)
    code = job.wait()
    if isinstance(job.process, ForkedPython):  # its multiprocessing has a process that ends after it
        until(lambda: not job.left_over(), "the end of torchrun's processes", 5 if stop else PATIENCE)
    left = job.left_over()
    assert not left, f"left over: {left}; {job.said()}"
    return {"code": code, "out": sorted(job.out().splitlines()), "err": job.err()}


def run(command, environment):
    with started(command, environment) as job:
        return ended(job)


BLOCK = re.compile(r"""\[\d+\]:
  time      : \d{4}-\d\d-\d\d_\d\d:\d\d:\d\d
  host      : \S+
  rank      : (?P<rank>\d+) \(local_rank: (?P<local_rank>\d+)\)
  exitcode  : (?P<code>-?\d+) \(pid: (?P<pid>\d+)\) (?P<signal>.*)
  error_file: (?P<file>\S+)
  traceback : (?P<traceback>.*(?:\n  .*)*)""")


def summary_of(err):
    """Returns the parts of ChildFailedError's text that are equal in every run."""
    if "ChildFailedError" not in err:
        return None
    text = err[err.index("ChildFailedError: \n") + len("ChildFailedError: \n"):]
    border, title, rule = text.split("\n")[:3]
    assert set(border) == {"="} and set(rule) == {"-"} and len(border) == len(rule), text
    others, root = text.split("Root Cause (first observed failure):\n")

    def blocks(part):
        return [{**match.groupdict(), "pid": match["pid"] in part, "file": match["file"] != "<N/A>",
                 "traceback": re.sub(r"PID \d+", "PID", match["traceback"]).strip().split("\n")[-1]}
                for match in BLOCK.finditer(part)]

    binary = re.search(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+) \(pid: (\d+)\) of", err)
    return {"title": title, "width": len(border), "root": blocks(root), "others": blocks(others),
            "none": "<NO_OTHER_FAILURES>" in others, "logged": binary and binary.groups()[:2]}


def launched(who, options, environment):
    launcher, own = LAUNCHERS[who]
    # --local-addr, because torchrun otherwise needs the machine's name, which not every container resolves.
    return started([*launcher, *options], {"PET_LOCAL_ADDR": "127.0.0.1", **own, **environment})


def outcome(job, stop):
    result = ended(job, stop)
    said = {"code": result["code"], "out": result["out"], "summary": summary_of(result["err"])}
    said["usage"] = bool(re.match(r"usage: \S+ \[-h\] ", result["err"]))
    said["argparse's"] = re.search(r"^\S+: error: ", result["err"], re.M) is not None
    said["signal"] = re.findall(r"SignalException: Process \d+ got signal: \d+", re.sub(r"Process \d+", "Process 1",
                                                                                      result["err"]))
    return said, result["err"]


def both(options, environment, stop=None, tries=5):
    with launched("torchrun", options, environment) as theirs, launched("ddprun", options, environment) as ours:
        ours_said = outcome(ours, stop)
        try:
            return outcome(theirs, stop), ours_said
        except AssertionError as late:
            if not stop or tries == 1:
                raise
            # A worker may be quicker than torchrun, which then does not know of it yet when the signal comes.
            print(f"torchrun did not end its worker at {stop.name}; it is asked again: {str(late).splitlines()[0]}")
    return both(options, environment, stop, tries - 1)


def same(what, options, environment=None, stop=None):
    (theirs, their_err), (ours, our_err) = both(options, environment or {}, stop)
    if theirs["summary"] and options[0] == "--run-path":
        # There the title names a function of torchrun, and the error is the launcher's as well as the worker's.
        theirs["summary"]["title"] = ours["summary"]["title"]
        theirs["summary"]["logged"] = ours["summary"]["logged"]
        theirs["summary"]["width"] = ours["summary"]["width"]
    assert ours == theirs, f"{what}\ntorchrun: {theirs}\nddprun:   {ours}\n{their_err}\n{our_err}"
    print(f"ok   {what}: exit code {ours['code']}")
    return ours


NPROC2 = ["--nproc-per-node=2"]
EACH = 1 if os.environ.get("DDPRUN_TEST_FULL_INTEROP") else 3
for options, environment in [
    (["show.py", "a", "--nproc-per-node", "9", "--", "$local_rank", "${local_rank}x", "$$", "$other"], {}),
    ([*NPROC2, "--", "show.py", "a"], {}),
    (["--nproc-per", "2", "-r=0", "-t0", "--rdzv-e", "127.0.0.1:0", "--rdzv-b=c10d", "show.py"], {}),
    (["--nproc_per_node", "2", "--max_restarts=1", "--role", "", "--rdzv-id=", "show.py"], {}),
    (["-m", "--", "show", "a"], {}),
    (["--no-python", "echo", "a", "$local_rank"], {}),
    (["show.py"], {"PET_NPROC_PER_NODE": "2", "PET_MODULE": "0", "PET_NO_PYTHON": "0"}),
    (["echo", "a"], {"PET_NO_PYTHON": "1"}),
    (["show"], {"PET_MODULE": "2"}),
    (["--nproc-per-node=1", "show.py"], {"PET_NPROC_PER_NODE": "2", "PET_STANDALONE": "1"}),
    (["--print-completion", "csh"], {}),
    (["--run-path", "show.py", "a", "-b"], {}),
    (["--run-path", "--no-python", "-m", os.path.join(HERE, "show.py")], {}),
    (["--run-path", "quit.py", "0"], {}),  # sys.exit() without a code hangs torchrun 2.15
    (["-m", "--", "show", "--", "a"], {}),
    (["show.py", "--", "a", "--", "b"], {}),
][::EACH]:
    same(" ".join([f"{name}={value}" for name, value in environment.items()] + options), options, environment)

for options in [
    [*NPROC2, "exit.py", "7"],
    ["die.py", str(int(signal.SIGKILL))],
    ["record.py"],
    ["nowhere.py"],
    ["--no-python", "./nowhere"],
    ["--run-path", "quit.py", "3"],
    # Values that cannot be parsed, and values that can but are not available.
    [],
    ["-y", "show.py"],
    ["--nproc-per-node"],
    ["--max-restarts=x", "show.py"],
    ["--start-method=thread", "show.py"],
    ["--standalone=1", "show.py"],
    ["--ma=1", "show.py"],
    ["--print-completion"],
    ["--print-completion=csh"],
    ["--nnodes=1:2:3", "show.py"],
    ["--nproc-per-node=some", "show.py"],
    ["--tee=4", "show.py"],
    ["--local-ranks-filter=a", "show.py"],
    ["--rdzv-backend=none", "show.py"],
    ["--rdzv-backend=c10d", "--nnodes=2", "--rdzv-endpoint=a:b", "show.py"],
    ["--rdzv-conf=a", "show.py"],
    ["--module", "--no-python", "show"],
    ["--logs-specs=none", "show.py"],
    ["--event-log-handler=none", "show.py"],
    ["--log-dir=show.py", "show.py"],
][::EACH]:
    assert same(" ".join(options), options)["code"] != 0

for number in (signal.SIGTERM, signal.SIGINT):
    assert same(f"{number.name} to the launcher", ["wait.py"], stop=number)["signal"]


def error_file(who, script):
    logs = tempfile.mkdtemp(dir=HERE)
    launcher, own = LAUNCHERS[who]
    result = run([*launcher, "--run-path", "--local-addr=127.0.0.1", "--log-dir", logs, script], own)
    assert result["code"] == 1, result["err"]
    (path,) = [os.path.join(at, name) for at, _, names in os.walk(logs) for name in names if name == "error.json"]
    content = json.load(open(path))["message"]
    extra = content["extraInfo"]
    assert re.fullmatch(r"\d{10}", extra["timestamp"]), content
    # The traceback's lines above the script's own belong to the launcher.
    return content["message"], extra["py_callstack"].split("\n")[-4:], sorted(content), sorted(extra)


for script in ("raise.py", "nowhere.py", "record.py"):
    theirs, ours = error_file("torchrun", script), error_file("ddprun", script)
    assert ours == theirs, f"{script}\ntorchrun: {theirs}\nddprun:   {ours}"
    print(f"ok   --run-path {script}: the error file")

for theirs, ours in [(["show.py", "a"], ["--legacy-local-rank", "show.py", "a"]),
                     (["-m", "show", "a"], ["--legacy-local-rank", "-m", "show", "a"]),
                     (["--run-path", "show.py", "a"], ["--legacy-local-rank", "--run-path", "show.py", "a"]),
                     (["--use-env", "show.py", "a"], ["--use-env", "show.py", "a"])]:
    environment = {"PET_NPROC_PER_NODE": "2", "PET_LOCAL_ADDR": "127.0.0.1"}
    expected = run([*LAUNCH, *theirs], environment)
    result = run([LINK, *ours], {**environment, "PYTHON_EXEC": sys.executable})
    assert expected["code"] == 0 and result == {**expected, "err": result["err"]}, f"{expected}\n{result}"
    print(f"ok   {' '.join(ours)}: as torch.distributed.launch {' '.join(theirs)}")

# Hints lead to a command line that works, whichever spelling a script knows and whichever was tried first.
for declared in ("'--local_rank'", "'--local-rank'", "'--lr'"):
    for is_required in ("True", "False"):
        with open(os.path.join(HERE, "legacy.py"), "w") as file:
            file.write("import argparse, os\nparser = argparse.ArgumentParser()\n"
                       f"parser.add_argument({declared}, dest='rank', required={is_required}, default='none')\n"
                       "rank = parser.parse_args().rank\n"
                       "print(os.environ['LOCAL_RANK'] if rank == 'none' else rank)\n")
        if declared == "'--lr'" and is_required == "True":
            continue  # no option of the launcher gives it
        for first in ([], ["--legacy-local-rank"], ["--legacy-local-rank=underscore"]):
            tried = [first]
            while (result := run([os.path.abspath(sys.argv[1]), "--nproc-per-node=2", *tried[-1], "legacy.py"],
                                 {"PYTHON_EXEC": sys.executable}))["code"] != 0:
                hint = re.search("hint: (.*)", result["err"])[1]
                assert "leave --legacy-local-rank out" in hint or "ddprun --legacy-local-rank" in hint, result["err"]
                passes = re.search(r"ddprun (--legacy-local-rank\S*) passes it", hint)
                tried.append([passes[1]] if passes else [])
                assert len(tried) < 3, (declared, tried, result["err"])
            assert result["out"] == ["0", "1"], (declared, tried, result)
print("ok   the hints for --local_rank are followed in one step")

listed = subprocess.run([*TORCHRUN, "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
theirs = {word for line in listed for word in re.findall(r"(?<![\w-])--[a-z]+(?:-[a-z]+)*(?![\w-])", line)
          if re.match(r"\s+(-\w[ ,]|--)", line)}
ours = run([LINK, "--help"], {})["out"]
missing = {option for option in theirs if not any(re.match(rf"  (-\w, )?{option}(\s|\[|$)", line) for line in ours)}
assert len(theirs) > 30 and not missing, (sorted(missing), sorted(theirs))
print(f"ok   --help has all {len(theirs)} options of torchrun")
