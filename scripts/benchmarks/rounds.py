# SPDX-License-Identifier: BSD-3-Clause
"""Contenders take turns, A B A B; what each run gave is kept, so that ratios are taken pair by pair."""
import dataclasses
import shlex
import statistics
import sys
from typing import Callable


class WrongResult(Exception):
    """A contender did something else than what was measured: the run as a whole fails."""


class NotDone(Exception):
    """A contender did not do what was asked of it: a result, if it is not ours; it counts as a run without figures."""


@dataclasses.dataclass
class Contender:
    name: str
    command: list  # as it is started; shown on the page without this machine's folders
    measure: Callable[[], dict] = None  # runs it once and returns figures: {"wall_ms": 7.1, ...}
    version: str = ""
    not_run: str = ""  # why this machine cannot
    ours: bool = False  # has to do what is asked of it


@dataclasses.dataclass
class Row:
    """What one contender did in one group."""
    name: str
    command: str = ""
    version: str = ""
    not_run: str = ""
    runs: list = dataclasses.field(default_factory=list)  # figures of each run, in order; {} of one that did not work
    failures: list = dataclasses.field(default_factory=list)  # why those did not

    def samples(self, figure):
        return [run[figure] for run in self.runs if figure in run]

    def median(self, figure):
        samples = self.samples(figure)
        return statistics.median(samples) if samples else None

    def quartiles(self, figure):
        """What the middle half of the runs lies between."""
        samples = sorted(self.samples(figure))
        if len(samples) < 2:
            return (samples[0], samples[0]) if samples else None
        lower, _, upper = statistics.quantiles(samples, n=4, method="inclusive")
        return lower, upper

    def ratio(self, other, figure):
        """How many times the other's figure this one's is: the median of the ratios of runs that were one pair."""
        pairs = [mine[figure] / theirs[figure] for mine, theirs in zip(self.runs, other.runs)
                 if figure in mine and theirs.get(figure)]
        return statistics.median(pairs) if pairs else None


@dataclasses.dataclass
class Group:
    """Rows that are compared with one another: one table, or one place on a plot's axis."""
    name: str
    rows: list
    facts: dict = dataclasses.field(default_factory=dict)  # what a section wants to find again: {"workers": 8}

    def row(self, name):
        return next((row for row in self.rows if row.name == name), None)


def one_run(group, contender):
    """Figures, and why there are none."""
    try:
        return contender.measure(), ""
    except NotDone as reason:
        if not contender.ours:
            return {}, str(reason)
        wrong = reason
    except (WrongResult, AssertionError) as reason:  # the latter of tests/interop/jobs.py
        wrong = reason
    raise WrongResult(f"{group}, {contender.name}: {wrong}") from wrong


def in_turn(name, contenders, runs, show=str, warm_up=True, facts=None):
    """Measures each contender `runs` times, in turn. show: makes a command fit to be shown."""
    rows = [Row(c.name, shlex.join(show(word) for word in c.command), c.version, c.not_run) for c in contenders]
    able = [(contender, row) for contender, row in zip(contenders, rows) if not contender.not_run]
    print(f"  {name}: {', '.join(contender.name for contender, _ in able)}", file=sys.stderr, flush=True)
    for run in range(-1 if warm_up else 0, runs):
        for contender, row in able:
            figures, failure = one_run(name, contender)
            if run >= 0:
                row.runs.append(figures)
                row.failures += [failure] if failure else []
    return Group(name, rows, facts or {})
