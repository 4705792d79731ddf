# SPDX-License-Identifier: BSD-3-Clause
"""The same calls on our store and on torch's: what torch's answers is right."""
from concurrent.futures import ThreadPoolExecutor


class Check:
    """new: how one more client connects, to "ours" and to "torch".
    outcome: calls what it is given and makes of the value or the exception what must be the same."""

    def __init__(self, new, outcome, about=""):
        self.new, self.outcome, self.about = new, outcome, about
        self.failures = 0

    def report(self, good, what, seen):
        self.failures += not good
        print(f"{'ok  ' if good else 'FAIL'} {self.about}{what}: {seen}"[:150])

    def same(self, what, script):
        """Runs script(new) with either."""
        seen = {who: self.outcome(script, new) for who, new in self.new.items()}
        self.report(seen["ours"] == seen["torch"], what, repr(seen["torch"]))
        if seen["ours"] != seen["torch"]:
            print(f"     ours: {seen['ours']!r}")


def meanwhile(waits, then):
    """Runs waits() in a thread and then() here; the answer is that of waits(). Right in either order."""
    with ThreadPoolExecutor() as threads:
        answer = threads.submit(waits)
        then()
        return answer.result()
