# SPDX-License-Identifier: BSD-3-Clause
"""`ddprun --hang-timeout`: names the rank and the line of each hang in cases.py, and none in jobs that are only slow.

usage: test_hangs.py DDPRUN ROOT hangs|nodes|healthy
"""
import json
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.dirname(HERE))
from jobs import Job, free_port, run  # noqa: E402

ddprun, root, what = sys.argv[1:]
beside = os.path.join(os.path.dirname(sys.executable), "py-spy")
if not os.path.exists(beside) and not shutil.which("py-spy"):
    print("skipped: there is no py-spy (pip install py-spy)")
    sys.exit(77)
RANKS = 4


def command(script, *options):
    return (ddprun, *options, "--log-format", "json", "--preload", "torch", os.path.join(HERE, script))


ENVIRONMENT = {"PYTHON_EXEC": sys.executable, "OMP_NUM_THREADS": "1",
               "PYTHONPATH": os.path.join(root, "runtime/python"),
               "PATH": os.path.dirname(os.path.abspath(ddprun)) + os.pathsep + os.environ["PATH"]}


def job(script, *options, patience):
    return run(*command(script, "--nproc_per_node", RANKS, *options), environment=ENVIRONMENT, patience=patience)


def job_of_two_nodes(script, *options, patience):
    """Returns the logs of node 0, which judges, and node 1."""
    port = free_port()

    def node(rank):
        return Job(*command(script, "--nproc_per_node", RANKS // 2, "--nnodes", 2, "--node_rank", rank, "--master_port",
                            port, *options), environment=ENVIRONMENT, patience=patience)
    with node(0) as first, node(1) as second:
        codes = first.wait(), second.wait()
        assert codes == (0, 0), first.said() + second.said()
        return first.err(), second.err()


def hangs_in(err):
    lines = [json.loads(line) for line in err.splitlines() if line.startswith('{"time"')]
    return [line for line in lines if line["event"] == "hang"]


def lines_marked(mark):
    lines = open(os.path.join(HERE, "cases.py")).read().splitlines()
    return {line.split(mark)[1]: f"cases.py:{number}" for number, line in enumerate(lines, 1) if mark in line}


def skip_without_rights(hangs):
    if any("ermission" in missing for hang in hangs for worker in hang["details"].get("stacks", [])
           for missing in worker["missing"]):
        print("skipped: no process may be traced here (ptrace_scope, or a container without SYS_PTRACE)")
        sys.exit(77)


def check(hangs, err):
    """Checks each verdict, and prints the table: case, verdict, seconds without progress until then."""
    import cases
    skip_without_rights(hangs)
    places, others = lines_marked("  # here: "), lines_marked("  # there: ")
    wrong = 0
    for hang in hangs:
        name, _, culprits, verdict = cases.CASES[hang["round"] - 1]
        # One that has ended is nowhere.
        expected = (list(culprits), verdict, places[name] if verdict != "ended" else "")
        found = tuple(hang["details"][key] for key in ("ranks", "verdict", "place"))
        head, words = hang["reason"].split("\n")[:2]
        is_right = found == expected and others.get(name, "") in words
        wrong += not is_right
        seconds = head.split(" for ")[1].split(",")[0]
        print(f"| {name} | {hang['details']['verdict']} | {seconds} | "
              + ("" if is_right else f"NOT {expected} {others.get(name, '')}: ") + words.strip() + " |")
    assert wrong == 0 and len(hangs) == len(cases.CASES), f"{wrong} wrong, {len(hangs)} of {len(cases.CASES)}\n{err}"


def options_for_hangs():
    import cases
    return ("--hang-timeout", 1, "--on-hang", "restart", "--max-restarts", len(cases.CASES)), 40 * len(cases.CASES)


def each_hang_has_its_culprit():
    options, patience = options_for_hangs()
    _, err = job("cases.py", *options, patience=patience)
    check(hangs_in(err), err)


def each_hang_has_its_culprit_on_both_nodes():
    os.environ["DDPRUN_HANGS_NODES"] = ENVIRONMENT["DDPRUN_HANGS_NODES"] = "2"
    options, patience = options_for_hangs()
    err, err_of_other = job_of_two_nodes("cases.py", *options, patience=patience)
    verdicts, told = hangs_in(err), hangs_in(err_of_other)
    check(verdicts, err)
    for verdict, other in zip(verdicts, told):
        assert verdict["reason"].split("\n")[:2][1] == other["reason"].split("\n")[1], (verdict, other)
    assert len(verdicts) == len(told), err_of_other


def slow_is_not_a_hang():
    patience = 120 + 10 * float(os.environ.get("DDPRUN_HEALTHY_SECONDS", "0"))
    out, err = job("healthy.py", "--hang-timeout", 1, patience=patience)
    assert not hangs_in(err), err
    assert out.count("all phases are over") == RANKS, out + err
    print(out)


{"hangs": each_hang_has_its_culprit, "nodes": each_hang_has_its_culprit_on_both_nodes,
 "healthy": slow_is_not_a_hang}[what]()
