# SPDX-License-Identifier: BSD-3-Clause
"""The frame of scripts/bench, over contenders that do nothing."""
import importlib.util
import os
import sys
import tempfile
import unittest

root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(root, "scripts"))
from benchmarks import SECTIONS, kept, plots, processes, rounds  # noqa: E402
from benchmarks.page import Column, Page  # noqa: E402
from benchmarks.rounds import Contender, Group, NotDone, Row, WrongResult, in_turn  # noqa: E402


def numbers(values):
    """A contender's measure(): one value a call."""
    left = iter(values)
    return lambda: {"ms": float(next(left))}


def row(name, values, **more):
    return Row(name, runs=[{} if value is None else {"ms": value} for value in values], **more)


class Rounds(unittest.TestCase):
    def test_contenders_take_turns_and_the_first_turn_is_a_warm_up(self):
        order = []
        contenders = [Contender(name, [name], lambda name=name: order.append(name) or {"ms": float(len(order))})
                      for name in "AB"]
        group = in_turn("g", contenders, runs=2)
        self.assertEqual("".join(order), "ABABAB")
        self.assertEqual(group.row("A").samples("ms"), [3.0, 5.0])

    def test_one_that_cannot_run_says_why_and_is_not_run(self):
        group = in_turn("g", [Contender("A", ["a"], None, not_run="no such thing here")], runs=2)
        self.assertEqual((group.row("A").not_run, group.row("A").runs), ("no such thing here", []))

    def test_one_that_fails_to_do_it_keeps_its_place_in_the_pairs(self):
        outcomes = iter([NotDone("it hung"), {"ms": 8.0}])

        def measure():
            outcome = next(outcomes)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        group = in_turn("g", [Contender("A", ["a"], measure), Contender("B", ["b"], numbers([1, 2]))], 2, warm_up=False)
        self.assertEqual(group.row("A").failures, ["it hung"])
        self.assertEqual(group.row("A").ratio(group.row("B"), "ms"), 4.0)

    def test_a_wrong_result_is_passed_on_with_the_contenders_name(self):
        def measure():
            raise WrongResult("the sum is 7")

        with self.assertRaisesRegex(WrongResult, "g, A: the sum is 7"):
            in_turn("g", [Contender("A", ["a"], measure)], runs=1)

    def test_ratios_are_of_pairs_and_not_of_medians(self):
        slow_machine_in_the_middle = row("A", [10.0, 100.0, 30.0]), row("B", [1.0, 50.0, 10.0])
        self.assertEqual(slow_machine_in_the_middle[0].ratio(slow_machine_in_the_middle[1], "ms"), 3.0)
        self.assertEqual(row("A", [1.0, 2.0, 3.0, 4.0, 100.0]).quartiles("ms"), (2.0, 4.0))


class OnThePage(unittest.TestCase):
    def test_a_table_has_medians_spreads_ratios_and_reasons(self):
        page = Page("benchmarks")
        page.rows(Group("8 workers", [row("ours", [1.0, 2.0, 3.0]), row("theirs", [4.0, None, 9.0], failures=["hung"]),
                                      Row("other", not_run="no MPI here")]), [Column("wall ms", "ms")], base="ours")
        self.assertEqual(page.lines[2:5], ["| ours | 3 | 2.0 (1.5–2.5) |  |",
                                           "| theirs | 2 of 3 | 6.5 (5.2–7.8) | 3.5 |",
                                           "| other | not run: no MPI here |  |  |"])

    def test_what_was_kept_is_found_again(self):
        groups = [Group("g", [row("ours", [1.23456789, None], failures=["hung"]), Row("o", not_run="no")], {"n": 8})]
        with tempfile.TemporaryDirectory() as folder:
            self.assertIsNone(kept.find(folder, "launch"))
            kept.keep(folder, "launch", kept.Measured("bench", "2 CPUs", "abc", "2026-01-01", [0.1, 0.2], groups))
            found = kept.find(folder, "launch")
        self.assertEqual(found.groups[0].row("ours").runs, [{"ms": 1.23457}, {}])
        self.assertEqual((found.groups[0].facts, found.groups[0].row("o").not_run, found.load),
                         ({"n": 8}, "no", [0.1, 0.2]))

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "no python3-matplotlib here")
    def test_the_same_figures_are_the_same_bytes_of_svg(self):
        groups = [Group("g", [row("ddprun", [1.0, 2.0]), row("torchrun", [3.0, 4.0])])]
        with tempfile.TemporaryDirectory() as folder:
            drawn = []
            for name in "ab":
                path = os.path.join(folder, name)
                plots.save(path, lambda axes: plots.grouped_bars(axes, groups, "ms", ["ddprun", "torchrun"]))
                with open(path) as file:
                    drawn.append(file.read())
        self.assertEqual(*drawn)
        self.assertIn("torchrun", drawn[0])

    def test_every_section_has_what_the_frame_asks_for(self):
        for section in SECTIONS:
            module = __import__(f"benchmarks.{section}", fromlist=["TITLE"])
            self.assertTrue(module.TITLE and module.ABOUT and module.measure and module.write, section)


def runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().split()[2] != "Z"
    except OSError:
        return False


class Timed(unittest.TestCase):
    def test_time_and_cpu_of_all_its_processes_are_taken(self):
        times = processes.timed(["sh", "-c", "(i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done); true"])
        self.assertGreater(times.cpu_ms, 5)
        self.assertGreaterEqual(times.wall_ms, times.cpu_ms / 2)

    def test_a_failure_is_a_wrong_result(self):
        with self.assertRaisesRegex(WrongResult, "ended with 3"):
            processes.timed(["sh", "-c", "exit 3"])

    def test_what_it_leaves_is_a_wrong_result_and_is_killed(self):
        with self.assertRaisesRegex(WrongResult, "left processes: .*sleep 1000") as raised:
            processes.timed(["sh", "-c", "sleep 1000 &"])
        pid = int(str(raised.exception).split("{")[1].split(":")[0])
        self.assertFalse(runs(pid))

    def test_one_that_hangs_is_killed_at_its_deadline(self):
        patience, processes.DEADLINE = processes.DEADLINE, 0.2
        self.addCleanup(setattr, processes, "DEADLINE", patience)
        with self.assertRaisesRegex(WrongResult, "did not end within 0.2 s"):
            processes.timed(["sleep", "1000"])


if __name__ == "__main__":
    unittest.main()
