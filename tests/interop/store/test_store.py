#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Real torch.distributed.TCPStore clients on ddprun's store server; each answer is compared with a real torch server's.

usage: test_store.py STORE_SERVER_MAIN [SEED]      (exit code 0: every check passed)

Makes the calls that wait and those that fail one by one, then some hundred random calls. A seed repeats a run.
"""
import os
import random
import subprocess
import sys
from datetime import timedelta
from functools import partial

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # expected errors would print pages of C++ frames
import torch.distributed as dist  # noqa: E402

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # for compare
from compare import Check, meanwhile  # noqa: E402

SHORT = timedelta(milliseconds=200)
LONG = timedelta(seconds=30)
RANDOM_CALLS = 600


def client(port, **options):
    return dist.TCPStore("127.0.0.1", port, is_master=False, timeout=LONG, **options)


def outcome(call, *arguments, **options):
    """Returns what a caller sees: the value, or the kind of error, whose text differs by ports and times."""
    try:
        return call(*arguments, **options)
    except Exception as error:
        return f"raises {type(error).__name__}"


def named_checks(check):
    same = check.same

    same("num_keys at the start", lambda new: new().num_keys())
    same("a worker counts itself in", lambda new: (new(world_size=2).num_keys(), new().num_keys()))

    def set_get(new):
        a, b = new(), new()
        a.set("k", "v")
        a.set("binary", b"\x00\xff\x80")
        a.set("empty", "")
        a.set("", "nameless")
        return b.get("k"), b.get("binary"), b.get("empty"), b.get("")

    same("set, get", set_get)

    def large(new):
        a = new()
        a.set("large", b"x" * (8 << 20))
        return len(a.get("large")), a.delete_key("large")

    same("a value of 8 MiB", large)

    def too_large(new):
        a = new()
        a.set("larger", b"x" * ((8 << 20) + 1))
        return a.check(["larger"])

    same("a value of 8 MiB and a byte", lambda new: "raises" in str(outcome(too_large, new)))

    def add(new):
        a = new()
        return a.add("n", 5), a.add("n", -7), a.get("n"), a.add("n", 0)

    same("add", add)

    def add_to(text):
        def script(new):
            a, b = new(), new()
            a.set("text", text)
            return outcome(a.add, "text", 1), b.get("text")
        return script

    for text in ("12abc", " +12", "-5", "9223372036854775807"):
        same(f"add to {text!r}", add_to(text))
    for text in ("", "abc", "9223372036854775808"):
        same(f"add to {text!r} ends the connection", add_to(text))

    def compare_set(new):
        a = new()
        return (a.compare_set("cs", "old", "new"), a.check(["cs"]), a.compare_set("cs", "", "first"),
                a.compare_set("cs", "x", "y"), a.compare_set("cs", "first", "second"), a.get("cs"))

    same("compare_set", compare_set)
    same("check", lambda new: (new().check(["k"]), new().check(["k", "none"]), new().check([])))
    same("delete_key", lambda new: (new().delete_key("k"), new().delete_key("k"), new().check(["k"])))

    def append(new):
        a = new()
        a.append("log", "one")
        a.append("log", "+two")
        return a.get("log")

    same("append", append)

    def multi(new):
        a = new()
        a.multi_set(["m1", "m2"], ["1", "22"])
        return a.multi_get(["m2", "m1", "m2"]), a.multi_get([])

    same("multi_set, multi_get", multi)

    def timeouts(new):
        a = new()
        return (outcome(a.wait, ["none"], SHORT), outcome(a.wait, ["m1", "none"], SHORT), a.get("m1"),
                outcome(a.wait, ["none"], timedelta(0)), a.get("m2"))

    same("wait that times out leaves the connection usable", timeouts)

    def get_times_out(new):
        a = new()
        a.set_timeout(SHORT)
        return outcome(a.get, "none"), a.get("m1")

    same("get that times out", get_times_out)

    wakers = {
        "set": lambda s, key: s.set(key, "1"),
        "add": lambda s, key: s.add(key, 1),
        "append": lambda s, key: s.append(key, "1"),
        "multi_set": lambda s, key: s.multi_set([key], ["1"]),
        "compare_set": lambda s, key: s.compare_set(key, "", "11"),
    }
    for name, wake in wakers.items():
        def script(new, name=name, wake=wake):
            a, b = new(), new()
            return meanwhile(lambda: a.get(f"late/{name}"), lambda: wake(b, f"late/{name}")), a.num_keys() > 0
        same(f"get that waits for {name}", script)

    def queue(new):
        a, b = new(), new()
        empty = a.queue_len("q"), outcome(a.queue_pop, "q", block=False)
        a.queue_push("q", "one")
        a.queue_push("q", "two")
        seen = a.queue_len("q"), a.check(["q"]), a.delete_key("q")
        popped = b.queue_pop("q"), b.queue_pop("q", block=False), b.check(["q"])
        b.set_timeout(SHORT)
        late = outcome(b.queue_pop, "q"), a.queue_len("q")
        b.set_timeout(LONG)
        return empty, seen, popped, late, meanwhile(lambda: b.queue_pop("q"), lambda: a.queue_push("q", "late"))

    same("queues", queue)

    def barrier(new):
        a, b = new(), new()
        together = meanwhile(lambda: a.barrier("bar", 2, LONG), lambda: b.barrier("bar", 2, LONG))
        return together, a.get("bar"), a.barrier("bar", 2, LONG), outcome(a.barrier, "bar3", 9, SHORT), a.get("bar3")

    same("barrier", barrier)

    def clone(new):
        a = new()
        b = a.clone()
        b.set("from the clone", "x")
        return a.get("from the clone")

    same("clone", clone)

    def prefixes(new):
        inner = dist.PrefixStore("in/", dist.PrefixStore("out", new()))
        inner.set("k", "v")
        return inner.get("k"), inner.add("n", 2), sorted(inner.list_keys()), new().get("out/in//k")

    same("prefixes", prefixes)
    same("list_keys", lambda new: sorted(new().list_keys()))
    same("num_keys at the end", lambda new: new().num_keys())


def random_call(dice):
    """Returns a random call as (method, arguments). There are few keys, so that calls meet; queues have other names."""
    key = lambda: dice.choice("abcdef")
    queue = lambda: dice.choice(["q1", "q2"])
    value = lambda: dice.choice(["", "7", "-3", "12x", "word", "w" * dice.randrange(1, 3000)])
    keys = lambda: [key() for _ in range(dice.randrange(5))]
    some = keys()
    calls = [
        ("set", (key(), value())), ("set", (key(), value())), ("add", (key(), dice.randrange(-9, 9))),
        ("append", (key(), value())), ("compare_set", (key(), value(), value())), ("delete_key", (key(),)),
        ("check", (keys(),)), ("num_keys", ()), ("list_keys", ()), ("multi_set", (some, [value() for _ in some])),
        ("queue_push", (queue(), value())), ("queue_pop", (queue(), False)), ("queue_len", (queue(),)),
        ("get_if", (key(),)), ("wait_if", (keys(),)),
    ]
    return dice.choice(calls)


def perform(store, method, arguments):
    """Calls get and wait only for existing keys: a time-out for each call would take minutes."""
    if method == "get_if":
        return store.get(arguments[0]) if store.check([arguments[0]]) else "none"
    if method == "wait_if":
        return store.wait(arguments[0], LONG) if store.check(arguments[0]) else "none"
    result = getattr(store, method)(*arguments)
    if result is None:
        store.num_keys()  # the call has no answer; without this, another client's next call might overtake it
    return sorted(result) if method == "list_keys" else result


def random_checks(check, seed):
    dice = random.Random(seed)
    stores = {name: [new() for _ in range(3)] for name, new in check.new.items()}
    for number in range(RANDOM_CALLS):
        who = dice.randrange(3)
        method, arguments = random_call(dice)
        answers = {name: outcome(perform, clients[who], method, arguments) for name, clients in stores.items()}
        if answers["ours"] != answers["torch"]:
            check.failures += 1
            print(f"FAIL call {number}, {method}{arguments}: torch {answers['torch']!r}, ours {answers['ours']!r}"[:300])
        if "raises DistNetworkError" in answers.values():  # the server closed the connection, as it should: connect again
            for name, new in check.new.items():
                stores[name][who] = new()
    print(f"done {RANDOM_CALLS} random calls by 3 clients, seed {seed}")


def main():
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 32)
    torch_server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=LONG)
    server = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        check = Check({"ours": partial(client, int(server.stdout.readline())),
                       "torch": partial(client, torch_server.port)}, outcome)
        named_checks(check)
        random_checks(check, seed)
    finally:
        server.stdin.close()
        if server.wait(timeout=10) != 0:
            sys.exit("our server did not end well")
    print(f"{check.failures} failures" if check.failures else "all answers are the same")
    return 1 if check.failures else 0


if __name__ == "__main__":
    sys.exit(main())
