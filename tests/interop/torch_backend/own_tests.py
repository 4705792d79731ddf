# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's own distributed tests, which are in its wheel (torch.testing._internal.distributed.distributed_test), over
the backend "ddp", "gloo" as served by "ddp", or PyTorch's "gloo". Needs the package expecttest, as they do.

usage: own_tests.py ddp|served|gloo [RANKS [TEST...]]    (default: 3 ranks, all tests; "some" are those for CI)

Prints a line for each test, "passed", "skipped: why" or "failed", and a sum. The exit code is 1 if one failed that is
not in KNOWN, and 77 without expecttest. PyTorch starts a Python for each rank of each test; here the ranks are forked,
which takes a tenth of the time.
"""
import importlib.util
import multiprocessing
import os
import re
import sys
import tempfile
import unittest

if not importlib.util.find_spec("expecttest"):
    print("skipped: PyTorch's own tests need expecttest: python -m pip install expecttest")
    sys.exit(77)

backend, ranks, tests = sys.argv[1], (sys.argv[2:3] or ["3"])[0], sys.argv[3:]
# What PyTorch's tests demand and cannot be had, with the reason.
WORDS = "the error is the same, in other words"
KNOWN = {
    "test_barrier_timeout_full_group": WORDS,
    "test_monitored_barrier_gloo": WORDS,
    "test_monitored_barrier_gloo_rank_0_timeout": WORDS,
    "test_monitored_barrier_gloo_subgroup": WORDS,
    "test_ddp_logging_data_cpu": 'PyTorch names every backend in Python "custom" in the log of DistributedDataParallel',
}
SOME = """
    test_all_gather_coalesced_complex test_all_gather_full_group test_all_reduce_coalesced_full_group_max
    test_all_reduce_full_group_product test_all_reduce_sum_complex test_barrier_full_group test_broadcast_full_group
    test_gather_full_group test_isend test_reduce_full_group_min test_scatter_complex test_send_recv_any_source
    test_DistributedDataParallelCPU test_DistributedDataParallelCPU_grad_is_view test_destroy_full_group
""".split()
if tests == ["some"]:
    tests = SOME

_folder = tempfile.TemporaryDirectory()
os.environ.update(BACKEND="gloo" if backend == "served" else backend, WORLD_SIZE=ranks, TEMP_DIR=_folder.name)
sys.argv = sys.argv[:1]

import torch  # noqa: E402

import ddprun.torch  # noqa: E402

if backend == "served":
    ddprun.torch.serve_gloo()

from torch.testing._internal import common_distributed  # noqa: E402

for feature, backends in common_distributed.DistTestCases.backend_feature.items():
    if "gloo" in backends and feature != "gpu":
        backends.add("ddp")  # else the tests of these features are skipped

from torch.testing._internal.distributed import distributed_test  # noqa: E402
from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend  # noqa: E402

if backend == "served":
    # They demand events that end on another thread, but a collective of ours ends within its call.
    distributed_test.PROFILING_SUPPORTED_BACKENDS.remove("gloo")
    distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS.remove("gloo")


class OwnTests(TestDistBackend, DistributedTest._DistTestBase):
    """PyTorch's class of the same content is in its repository only: test/distributed/test_distributed_spawn.py."""

    def setUp(self):
        super().setUp()
        self._start_processes(multiprocessing.get_context("fork").Process)


class Lines(unittest.TestResult):
    """Prints a line for each test."""

    def say(self, test, outcome):
        print(f"{test._testMethodName}: {outcome}", flush=True)

    def addSuccess(self, test):
        self.say(test, "passed")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.say(test, f"skipped: {reason}")

    def addFailure(self, test, err):
        lines = str(err[1]).strip().splitlines()
        what = next((line for line in reversed(lines) if re.match(r"\w*Error\b", line)), lines[0])
        if backend != "gloo" and test._testMethodName in KNOWN:
            self.addExpectedFailure(test, err)
            self.say(test, f"failed, as known ({KNOWN[test._testMethodName]}): {what}")
        else:
            super().addFailure(test, err)
            self.say(test, f"failed: {what}")

    addError = addFailure


if __name__ == "__main__":
    torch.set_num_threads(1)
    suite = unittest.TestLoader().loadTestsFromTestCase(OwnTests)
    if tests:
        suite = unittest.TestSuite(test for test in suite if test._testMethodName in tests)
    result = suite.run(Lines())
    skipped, known, wrong = map(len, (result.skipped, result.expectedFailures, result.failures))
    passed = result.testsRun - skipped - known - wrong
    print(f"{result.testsRun} tests: {passed} passed, {skipped} skipped, {known} failed as known, {wrong} failed")
    sys.exit(1 if wrong or not passed else 0)
