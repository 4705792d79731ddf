# SPDX-License-Identifier: BSD-3-Clause
"""Makes the same calls on libddp's store and on torch's. torch's answers count as right."""
from concurrent.futures import ThreadPoolExecutor


class Check:
    """Compares the two stores.

    new: functions that connect one more client, to "ours" and to "torch".
    outcome: calls a function, and returns the part of its value or exception that must be equal."""

    def __init__(self, new, outcome, about=""):
        self.new, self.outcome, self.about = new, outcome, about
        self.failures = 0

    def report(self, good, what, seen):
        self.failures += not good
        print(f"{'ok  ' if good else 'FAIL'} {self.about}{what}: {seen}"[:150])

    def same(self, what, script):
        """Runs script(new) on each of the two."""
        seen = {who: self.outcome(script, new) for who, new in self.new.items()}
        self.report(seen["ours"] == seen["torch"], what, repr(seen["torch"]))
        if seen["ours"] != seen["torch"]:
            print(f"     ours: {seen['ours']!r}")


def meanwhile(waits, then):
    """Runs waits() in a thread and then() in this one. Returns the result of waits(). Works in either order."""
    with ThreadPoolExecutor() as threads:
        answer = threads.submit(waits)
        then()
        return answer.result()
