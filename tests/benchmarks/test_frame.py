# SPDX-License-Identifier: BSD-3-Clause
"""The frame of scripts/bench, over contenders that do nothing."""
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import unittest

root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(root, "scripts"))
from benchmarks import SECTIONS, plots, processes, results  # noqa: E402
from benchmarks.bench import Bench  # noqa: E402
from benchmarks.page import Column, Page  # noqa: E402
from benchmarks.rounds import Contender, Group, NotDone, Row, WrongResult, in_turn  # noqa: E402
from benchmarks.sections import first_all_reduce, recovery, stacks  # noqa: E402
from benchmarks.stamps import Stamp  # noqa: E402


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

    def test_a_launcher_that_this_machine_lacks_says_which_package_has_it(self):
        launcher = Bench._mpi("MPI", "mpirun.nobody_has", "some-mpi", [], "8")
        self.assertEqual(launcher.not_run, "no mpirun.nobody_has here (Debian's some-mpi)")
        self.assertTrue(Bench(root, "build", quick=True, python="").launcher("torchrun", 8).not_run)

    def test_commands_are_shown_without_this_machines_folders(self):
        bench = Bench("/home/me/ddprun", "/home/me/ddprun/build/release", quick=True, python="/opt/venv/bin/python")
        launcher = bench.launcher("torchrun", 2)
        group = bench.in_turn("g", [Contender("A", [*launcher.prefix, bench.binary("ddprun"), "/home/me/ddprun/apps/a.py"],
                                              numbers([1]))], runs=1)
        self.assertEqual(group.row("A").command, "torchrun --nproc_per_node 2 ddprun apps/a.py")

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
        for wrong, ours in (WrongResult("the sum is 7"), False), (NotDone("the sum is 7"), True):
            def measure(wrong=wrong):
                raise wrong

            with self.assertRaisesRegex(WrongResult, "g, A: the sum is 7"):
                in_turn("g", [Contender("A", ["a"], measure, ours=ours)], runs=1)

    def test_ratios_are_of_pairs_and_not_of_medians(self):
        slow_machine_in_the_middle = row("A", [10.0, 100.0, 30.0]), row("B", [1.0, 50.0, 10.0])
        self.assertEqual(slow_machine_in_the_middle[0].ratio(slow_machine_in_the_middle[1], "ms"), 3.0)
        self.assertEqual(row("A", [1.0, 2.0, 3.0, 4.0, 100.0]).quartiles("ms"), (2.0, 4.0))


def stamped(rank, restart=0, **at):
    """One rank's stamps: {what: seconds}."""
    return [Stamp(rank, restart, what, 100 + rank, seconds) for what, seconds in at.items()]


class Stamps(unittest.TestCase):
    job = [*stamped(0, started=10.2, joined=10.3, reduced=10.7), *stamped(1, started=10.1, joined=10.4, reduced=10.6)]

    def test_a_part_ends_when_its_last_rank_is_through_and_parts_add_up(self):
        figures = first_all_reduce.parts_of(self.job, processes.Times(10.0, 1000.0, 5.0), workers=2)
        rounded = {name: round(value, 6) for name, value in figures.items()}
        self.assertEqual(rounded, {"total_ms": 700.0, "start_ms": 200.0, "init_ms": 200.0, "all_reduce_ms": 300.0,
                                   "end_ms": 300.0, "cpu_ms": 5.0})

    def test_a_rank_without_its_sum_or_with_another_ranks_number_is_a_wrong_result(self):
        for job in self.job[:-1], self.job[:-1] + stamped(0, reduced=10.6):
            with self.assertRaisesRegex(WrongResult, "2 ranks were to have the sum"):
                first_all_reduce.parts_of(job, processes.Times(10.0, 1000.0, 5.0), workers=2)

    def test_recovery_ends_in_the_first_round_that_all_ranks_finished(self):
        second = stamped(0, restart=1, started=11.0, reduced=11.1)
        third = [*stamped(0, restart=2, started=12.0, reduced=12.5), *stamped(1, restart=2, started=12.1, reduced=12.6)]
        self.assertIsNone(recovery.parts_of(self.job + second, 10.9, workers=2))
        figures = recovery.parts_of(self.job + second + third, 10.9, workers=2)
        self.assertEqual((round(figures["total_ms"]), round(figures["start_ms"])), (1700, 1200))


class Stacks(unittest.TestCase):
    def test_each_rank_of_what_ddprun_stacks_prints_has_its_entry(self):
        entry_of = stacks.of_ranks("rank 2: in pause, called at w.py:3 (odd)\n    odd    /a/w.py:3\n"
                                   "ranks 0-1, 3: in pause, called at w.py:7 (even)\n    even    /a/w.py:7\n")
        self.assertEqual(sorted(entry_of), [0, 1, 2, 3])
        self.assertTrue(stacks.shows(entry_of[2], "odd", "w.py", 3))
        self.assertTrue(all(stacks.shows(entry_of[rank], "even", "w.py", 7) for rank in (0, 1, 3)))

    def test_a_place_is_a_function_with_its_line_as_each_program_prints_it(self):
        for entry in ("    wait                       /a/w.py:7", "    wait (w.py:7)", "#1  0x2d in wait (n=1) at a/w.py:7"):
            self.assertTrue(stacks.shows(entry, "wait", "w.py", 7), entry)
            for place in ("wait", "w.py", 70), ("await", "w.py", 7), ("wait", "v.py", 7):
                self.assertFalse(stacks.shows(entry, *place), place)
        self.assertFalse(stacks.shows("    wait (w.py:70)", "wait", "w.py", 7))


class Command(unittest.TestCase):
    """scripts/bench itself, with a ddprun that is none."""

    def bench(self, ddprun):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        path = os.path.join(folder, "bin", "ddprun")
        os.mkdir(os.path.dirname(path))
        with open(path, "w") as file:
            file.write("#!/bin/sh\n" + ddprun)
        os.chmod(path, 0o755)
        return subprocess.run([os.path.join(root, "scripts/bench"), "--quick", "--no-build", "--build", folder, "--out",
                               folder, "--only", "ddprun", "launch"], stderr=subprocess.PIPE, text=True), folder

    def test_a_launcher_that_fails_fails_the_run_and_is_named(self):
        done, _ = self.bench("echo no luck >&2; exit 3")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "WRONG: launch: 8 workers, ddprun: .* ended with 3: no luck")

    def test_a_launcher_that_gives_ranks_twice_fails_the_run(self):
        done, _ = self.bench('n=$2; shift 2; while [ $n -gt 0 ]; do RANK=0 "$@" & n=$((n-1)); done; wait')
        self.assertEqual(done.returncode, 1)
        self.assertIn(r"8 workers were asked for; their ranks are [0, 0,", done.stderr)

    def test_one_that_does_its_work_is_a_page_however_slow_it_is(self):
        done, folder = self.bench('sleep 0.3; n=$2; shift 2; '
                                  'while [ $n -gt 0 ]; do n=$((n-1)); RANK=$n "$@" & done; wait')
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(folder, "benchmarks.md")) as page:
            shown = re.search(r"\| ddprun \| 1 \| ([\d,]+)\.", page.read())
        self.assertGreaterEqual(int(shown.group(1).replace(",", "")), 300)  # ms; a busy machine takes longer


class NotRun(unittest.TestCase):
    """scripts/bench where a section's contenders cannot run: here nccl, with a ddp_bench that finds no GPU."""

    def bench(self, folder):
        os.makedirs(os.path.join(folder, "bin"), exist_ok=True)
        for name, said in ("ddprun", "ddprun 1.0"), ("ddp_bench", '{"gpus": 0, "why": "no driver: here"}'):
            with open(os.path.join(folder, "bin", name), "w") as file:
                file.write(f"#!/bin/sh\necho '{said}'\n")
            os.chmod(file.name, 0o755)
        done = subprocess.run([os.path.join(root, "scripts/bench"), "--quick", "--no-build", "--build", folder, "--out",
                               folder, "nccl"], stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("nccl was not run, and stays as it was: no GPU (no driver)", done.stderr)
        with open(os.path.join(folder, "benchmarks.md")) as page:
            return page.read()

    def test_a_section_that_was_never_run_is_not_on_the_page(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertNotIn("all_reduce on GPUs", self.bench(folder))

    def test_a_section_that_was_run_before_stays_with_its_day(self):
        measured = [Group("2 GPUs", [Row(name, runs=[{"all_reduce 1024": 7.5}]) for name in ("libddp", "NCCL")], {"ranks": 2})]
        with tempfile.TemporaryDirectory() as folder:
            results.keep(os.path.join(folder, "benchmarks"), "nccl",
                         results.Measured("bench", "8 GPUs", "abc", "2025-01-01", [0.1, 0.2], measured))
            page = self.bench(folder)
        self.assertIn("7.5", page)
        self.assertIn("`bench` on 2025-01-01 at abc; 8 GPUs", page)

    def test_no_section_of_the_published_page_is_without_figures(self):
        for section in SECTIONS:
            measured = results.find(os.path.join(root, "docs/benchmarks"), section)
            self.assertTrue(measured is None or results.has_figures(measured.groups), section)


class OnThePage(unittest.TestCase):
    def test_a_table_has_medians_spreads_ratios_and_reasons(self):
        page = Page("benchmarks")
        page.rows(Group("8 workers", [row("ours", [1.0, 2.0, 3.0]), row("theirs", [4.0, None, 9.0], failures=["hung"]),
                                      Row("other", not_run="no MPI here")]), [Column("wall ms", "ms")], base=("ours", "theirs"))
        self.assertEqual(page.lines[2:5], ["| ours | 3 | 2.0 (1.5–2.5) |  | 0.29 |",
                                           "| theirs | 2 of 3 | 6.5 (5.2–7.8) | 3.5 |  |",
                                           "| other | not run: no MPI here |  |  |  |"])

    def test_what_was_kept_is_found_again(self):
        groups = [Group("g", [row("ours", [1.23456789, None], failures=["hung"]), Row("o", not_run="no")], {"n": 8})]
        with tempfile.TemporaryDirectory() as folder:
            self.assertIsNone(results.find(folder, "launch"))
            results.keep(folder, "launch", results.Measured("bench", "2 CPUs", "abc", "2026-01-01", [0.1, 0.2], groups))
            found = results.find(folder, "launch")
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
            module = __import__(f"benchmarks.sections.{section}", fromlist=["TITLE"])
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

    def test_a_command_that_fails_has_not_done_it(self):
        with self.assertRaisesRegex(NotDone, "ended with 3"):
            processes.timed(["sh", "-c", "exit 3"])

    def test_what_it_leaves_is_a_wrong_result_and_is_killed(self):
        with self.assertRaisesRegex(WrongResult, "left processes: .*sleep 1000") as raised:
            processes.timed(["sh", "-c", "sleep 1000 &"])
        pid = int(str(raised.exception).split("{")[1].split(":")[0])
        self.assertFalse(runs(pid))

    def test_what_it_leaves_may_end_by_itself_where_that_is_said(self):
        processes.timed(["sh", "-c", "sleep 0.1 &"], grace=60)

    def test_one_that_hangs_is_killed_at_its_deadline(self):
        patience, processes.DEADLINE = processes.DEADLINE, 0.2
        self.addCleanup(setattr, processes, "DEADLINE", patience)
        with self.assertRaisesRegex(NotDone, "did not end within 0.2 s"):
            processes.timed(["sleep", "1000"])


if __name__ == "__main__":
    unittest.main()
