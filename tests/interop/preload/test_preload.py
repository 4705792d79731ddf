#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests PyTorch in workers that are forked from a warm parent (--preload).

usage: test_preload.py DDPRUN observe
       test_preload.py DDPRUN restarts
       test_preload.py DDPRUN use FOLDER       FOLDER contains auto_imports.py, with the list of safe modules

DDPRUN_TEST_REPEATS multiplies the five restarts in a row (default 1). With
DDPRUN_TEST_FULL_INTEROP=1 torch.compile is tested too, which takes most of a minute.
"""
import importlib.util
import json
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.dirname(here))  # for jobs
from jobs import free_port, run  # noqa: E402

ddprun, what = os.path.abspath(sys.argv[1]), sys.argv[2]
PATIENCE = 300


def launch(workers, *arguments, preload="torch,numpy", environment=None):
    """Runs a job and returns (the workers' output, ddprun's)."""
    options = ["--preload", preload] if preload else []
    out, err = run(ddprun, "--nproc_per_node", workers, *options, *arguments, patience=PATIENCE,
                   environment={"PYTHON_EXEC": sys.executable, **(environment or {})})
    assert "--preload" not in err, err  # a refusal contains it
    return out, err


def observe():
    observer = os.path.join(here, "preload_observer.py")
    for workers in 1, 2:
        seen = {}
        for preload in "", "torch,numpy,preload_observed":
            out, _ = launch(workers, observer, "--lr", "0.1", preload=preload)
            seen[preload] = list(map(json.loads, out.splitlines()))
            assert len(seen[preload]) == workers, out
        everyone = [worker for of_job in seen.values() for worker in of_job]
        for worker in everyone:
            for name, fact in worker["facts"].items():
                expected = everyone[0]["facts"][name]
                assert fact == expected, f"{workers} workers, {name}\nexecuted: {expected}\nforked:   {fact}"
        for name in everyone[0]["drawn"]:
            drawn = [worker["drawn"][name] for worker in everyone]
            assert len(set(drawn)) == len(drawn), f"{name}: {drawn}"
        print(f"{workers} workers: {len(everyone[0]['facts'])} facts are as without --preload, "
              f"{len(everyone[0]['drawn'])} draws differ")


def use():
    sys.path.append(sys.argv[3])
    from auto_imports import KNOWN_SAFE
    installed = sorted(filter(importlib.util.find_spec, KNOWN_SAFE))
    assert {"torch", "numpy"} <= set(installed), KNOWN_SAFE
    full = os.environ.get("DDPRUN_TEST_FULL_INTEROP") == "1"
    out, err = launch(2, os.path.join(here, "preload_user.py"), *(["compile"] if full else []),
                      preload=",".join(installed), environment={"RPC_PORT": str(free_port())})
    assert sorted(out.splitlines()) == [f"rank {rank} used everything" for rank in range(2)], out + err
    print("preloaded:", *installed)
    print("DataLoader by fork and spawn, torch.multiprocessing, RPC" + (", torch.compile" if full else ""))


def restarts():
    count = 5 * int(os.environ.get("DDPRUN_TEST_REPEATS", "1"))
    out, err = launch(2, "--max-restarts", count, os.path.join(here, "preload_restarter.py"))
    rounds = list(map(json.loads, out.splitlines()))
    assert len(rounds) == count + 1, f"{out}\n{err}"
    assert len({one["pid"] for one in rounds}) == 1, f"not one parent: {out}"
    first, last = rounds[1], rounds[-1]  # the first round makes things that stay
    for who in "agent", "parent":
        for name in "descriptors", "threads":
            assert first[who][name] == last[who][name], f"{who}, {name}: {first} and then {last}"
        grown = last[who]["anonymous"] - first[who]["anonymous"]
        assert grown < 1024 + 20 * count, f"{who} has grown by {grown} KiB in {count - 1} rounds: {first} and then {last}"
    assert last["children"] <= 3 and last["of the parent"] == [] and last["parent"]["threads"] == 1, last
    print(f"{count} restarts: the parent has {last['parent']['anonymous']} KiB of its own, at first "
          f"{first['parent']['anonymous']}, and {last['parent']['descriptors']} descriptors; "
          f"the agent {last['agent']['anonymous']} KiB, at first {first['agent']['anonymous']}, and "
          f"{last['agent']['descriptors']} descriptors")


{"observe": observe, "use": use, "restarts": restarts}[what]()
