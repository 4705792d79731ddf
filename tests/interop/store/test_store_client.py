#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""ddp::TcpStore on real torch.distributed.TCPStore servers, libuv and legacy: each answer is the one that torch's own
client gets.

usage: test_store_client.py LIBDDP_SO      (exit code 0: every check passed)

Runs with any PyTorch from 2.2 on. libddp's client must report what an older server does not support.
"""
import os
import socket
import sys
import threading
from datetime import timedelta
from functools import partial

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # expected errors would print pages of C++ frames
import torch.distributed as dist  # noqa: E402

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # for compare
from compare import Check, meanwhile  # noqa: E402
from ddp_store import DdpError, Library  # noqa: E402

SHORT = timedelta(milliseconds=200)
LONG = timedelta(seconds=30)
RECENT = hasattr(dist.Store, "queue_push")  # 2.8 and later


class Servers(Check):
    """Two servers of one kind, one for torch's clients and one for libddp's."""

    def __init__(self, library, kind, **options):
        super().__init__({who: partial(self.client, who) for who in ("torch", "ours")}, outcome, f"{kind}, ")
        self.library, self.options = library, options
        server = dict(is_master=True, wait_for_workers=False, timeout=LONG, **options)
        self.servers = {who: dist.TCPStore("127.0.0.1", 0, **server) for who in self.new}

    def client(self, who):
        port = self.servers[who].port
        if who == "ours":
            return self.library.tcp("127.0.0.1", port, LONG)
        return dist.TCPStore("127.0.0.1", port, is_master=False, timeout=LONG, **self.options)

    def says(self, what, call, text):
        """A call that this server does not support closes the connection, and libddp's error says why."""
        try:
            call(self.client("ours"))
            self.report(False, what, "no error")
        except DdpError as error:
            self.report(error.status == "system" and text in str(error), what, str(error))


def outcome(call, *arguments):
    """Returns what a caller sees: the value, or that the call failed."""
    try:
        return call(*arguments)
    except Exception:
        return "raises"


def set_get(new):
    a, b = new(), new()
    a.set("k", "v")
    a.set("binary", b"\x00\xff\x80")
    a.set("empty", "")
    a.set("", "nameless")
    a.set("large", b"x" * (8 << 20))
    a.num_keys()  # set has no answer; without this, b might overtake it
    return b.get("k"), b.get("binary"), b.get("empty"), b.get(""), len(b.get("large")), a.delete_key("large")


def add(new):
    a = new()
    first = a.add("n", 5), a.add("n", -7), a.get("n"), a.add("n", 0)
    a.set("text", " +12abc")
    return first, a.add("text", 1), a.get("text")


def add_to_a_word(new):
    a, b = new(), new()
    a.set("word", "abc")
    return outcome(a.add, "word", 1), outcome(a.get, "k"), b.get("word")


# Values have two bytes, because torch's client up to 2.3 crashes on shorter answers to compare_set.
def compare_set(new):
    a = new()
    return (a.compare_set("cs", "old", "new"), a.compare_set("cs", "", "first"), a.compare_set("cs", "xx", "yy"),
            a.compare_set("cs", "first", "second"), a.get("cs"))


def check(new):
    a = new()
    return a.check(["k"]), a.check(["k", "none"]), a.check([])


def append(new):
    a = new()
    a.append("log", "one")
    a.append("log", "+two")
    return a.get("log")


def multi(new):
    a = new()
    a.multi_set(["m1", "m2"], ["1", "22"])
    return a.multi_get(["m2", "m1", "m2"])


def many(new):
    a = new()
    keys = [f"many/{i}" for i in range(3000)]
    a.multi_set(keys, [str(i) * (i % 50) for i in range(3000)])
    return a.multi_get(keys)


def delete_key(new):
    a = new()
    return a.delete_key("k"), a.delete_key("k"), a.num_keys()


def timeouts(new):
    a = new()
    first = outcome(a.wait, ["none"], SHORT), outcome(a.wait, ["cs", "none"], SHORT), a.get("cs")
    a.set_timeout(SHORT)
    return first, outcome(a.get, "none"), a.get("cs")


def wakes(name, wake):
    def script(new):
        a, b = new(), new()
        return meanwhile(lambda: a.get(f"late/{name}"), lambda: wake(b, f"late/{name}"))
    return script


def queues(new):
    a, b = new(), new()
    empty = a.queue_len("q"), outcome(a.queue_pop, "q", False)
    a.queue_push("q", "one")
    a.queue_push("q", "two")
    seen = a.queue_len("q"), a.check(["q"]), a.delete_key("q")
    popped = b.queue_pop("q"), b.queue_pop("q", False), b.check(["q"])
    b.set_timeout(SHORT)
    none = outcome(b.queue_pop, "q"), a.queue_len("q")
    b.set_timeout(LONG)
    return empty, seen, popped, none, meanwhile(lambda: b.queue_pop("q"), lambda: a.queue_push("q", "late"))


def barrier(new):
    a, b = new(), new()
    together = meanwhile(lambda: a.barrier("bar", 2, LONG), lambda: b.barrier("bar", 2, LONG))
    return together, a.get("bar"), a.barrier("bar", 2, LONG), outcome(a.barrier, "bar3", 9, SHORT), a.get("bar3")


def compare_all(check_):
    for script in (set_get, add, add_to_a_word, compare_set, append, multi, delete_key, timeouts):
        check_.same(script.__name__, script)
    if RECENT:  # 2.2's libuv server fails at a request that does not fit into one read
        check_.same("many", many)
    if hasattr(dist.Store, "check"):  # from 2.3 on, in Python
        check_.same("check", check)
    for name, wake in {"set": lambda s, key: s.set(key, "1"), "add": lambda s, key: s.add(key, 1),
                       "append": lambda s, key: s.append(key, "1"),
                       "multi_set": lambda s, key: s.multi_set([key], ["1"])}.items():
        check_.same(f"get that waits for {name}", wakes(name, wake))

    libuv = check_.options["use_libuv"]
    if RECENT and libuv:
        check_.same("queues", queues)
    else:
        for name, call in {"queue_push": lambda s: s.queue_push("q", "v"), "queue_pop": lambda s: s.queue_pop("q"),
                           "queue_len": lambda s: s.queue_len("q")}.items():
            check_.says(f"{name}, which it does not have", call, "queues from 2.8 on")
    if hasattr(dist.Store, "barrier"):
        check_.same("barrier", barrier)
    else:
        check_.says("barrier, which it does not have", lambda s: s.barrier("b", 1), "barriers from 2.12 on")
    if hasattr(dist.Store, "list_keys"):
        check_.same("list_keys", lambda new: sorted(new().list_keys()))
    else:
        check_.says("list_keys, which it does not have", lambda s: s.list_keys(), "lists keys from")
    check_.same("num_keys", lambda new: new().num_keys())


def one_store_for_both(check_):
    """A torch client and a libddp client on one server see each other's changes."""
    ours, torch = check_.client("ours"), dist.TCPStore("127.0.0.1", check_.servers["ours"].port, is_master=False,
                                                       timeout=LONG, **check_.options)
    ours.set("from ours", "a")
    torch.set("from torch", "b")
    seen = torch.get("from ours"), ours.get("from torch"), ours.add("both", 1), torch.add("both", 1)
    check_.report(seen == (b"a", b"b", 1, 2), "a torch client and ours share keys", seen)
    library = check_.library
    prefix = library.prefix("p", ours), dist.PrefixStore("p", torch)
    prefix[0].set("k", "v")
    check_.report((prefix[1].get("k"), torch.get("p/k")) == (b"v", b"v"), "and prefixes", "p/k")
    if hasattr(dist.Store, "barrier"):
        for what, (a, b) in {"barrier": (ours, torch), "barrier behind a prefix": prefix}.items():
            seen = meanwhile(lambda: a.barrier("meet", 2, LONG), lambda: b.barrier("meet", 2, LONG))
            check_.report(seen is None, f"and a {what}", seen)


def counted_in(check_):
    """A torch program's TCPStore(world_size=2) waits until libddp's client has joined."""
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    ours = []
    thread = threading.Thread(target=lambda: ours.append(
        outcome(lambda: check_.library.tcp("127.0.0.1", port, LONG, count_in=True).get("welcome"))))
    thread.start()
    server = dist.TCPStore("127.0.0.1", port, world_size=2, is_master=True, wait_for_workers=True, timeout=LONG,
                           master_listen_fd=listening.detach(), **check_.options)
    server.set("welcome", "both")
    thread.join()
    check_.report(ours == [b"both"], "is counted where a server waits for its workers", ours)


def main():
    library = Library(sys.argv[1])
    failures = 0
    for kind, libuv in {"libuv server": True, "legacy server": False}.items():
        check_ = Servers(library, kind, use_libuv=libuv)
        compare_all(check_)
        one_store_for_both(check_)
        if RECENT or not libuv:  # 2.2's libuv server takes no listening socket
            counted_in(check_)
        failures += check_.failures
    print(f"{failures} failures" if failures else "all answers are the same")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
