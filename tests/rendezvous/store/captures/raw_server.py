# SPDX-License-Identifier: BSD-3-Clause
"""Requests written by hand that PyTorch 2.15's servers were asked; raw_server_*.jsonl hold a name and the answers.

The names are the recordings'; keys are ours. Left out: LIST_KEYS, whose answer depends on all that came before, and
what takes megabytes (c10d_protocol_test.cpp asks for the limits).
"""


def u64(number):
    return (number % 2**64).to_bytes(8, "little").hex()


def text(string):
    return u64(len(string)) + string.encode().hex()


def several(operation, keys):
    return operation + u64(len(keys)) + "".join(text(key) for key in keys)


# Requests of a Modern client.
HELLO = "00cef7853c"
CANCEL = "0c"
def ping(nonce): return "0d" + u64(nonce)[:8]
def put(key, value): return "01" + text(key) + text(value)
def compare_set(key, expected, desired): return "02" + text(key) + text(expected) + text(desired)
def get(key): return "03" + text(key)
def add(key, delta): return "04" + text(key) + u64(delta)
def check(*keys): return several("05", keys)
def wait(*keys): return several("06", keys)
def delete(key): return "08" + text(key)
def append(key, value): return "09" + text(key) + text(value)
def multi_get(*keys): return several("0a", keys)
def multi_set(key, value): return "0b" + u64(1) + text(key) + text(value)
def push(key, value): return "0e" + text(key) + text(value)
def pop(key): return "0f" + text(key)
def length(key): return "10" + text(key)
def barrier(key, world): return "12" + text(key) + u64(world)


# Steps: (connection, request) sends; a connection alone is where the next answer of the recording was read; LEAVE(n):
# connection n closes. Connections say HELLO first, if their first request does not begin with RAW. One above 0 that is
# never read stands for the second client, 1000.
RAW = "raw "
K1 = "/k1"  # has the value v1


class LEAVE(int):
    pass


def bytewise(request):
    return [(0, request[i:i + 2]) for i in range(0, len(request), 2)]


def after_setting(value, *requests):
    return lambda key: [(0, put(key, value) + "".join(request(key) for request in requests)), 0]


def woken_by(*requests):
    return lambda key: [(0, wait(key)), (1, "".join(request(key) for request in requests)), 0]


def parked_then(request):
    return lambda key: [(0, barrier(key, 5)), 0, (1, request(key)), 0]


ASKED = {
    "VALIDATE byte by byte then GET": [(0, RAW + "00"), *bytewise("cef7853c" + get(K1)), 0],
    "VALIDATE wrong magic + GET": [(0, RAW + "0012345678" + get(K1)), 0],
    "no VALIDATE, GET directly": [(0, RAW + get(K1)), 0],
    "no VALIDATE, GET, then GET again": [(0, RAW + get(K1)), 0, (0, get(K1)), 0],
    "no VALIDATE: SET (01) then GET": [(0, RAW + put(K1, "v1")), 0, (0, get(K1)), 0],
    "HTTP GET request": [(0, RAW + "474554202f20485454502f312e310d0a0d0a"), 0],
    "VALIDATE twice": [(0, HELLO), 0],
    "PING": [(0, ping(0x1234)), 0],
    "PING twice + GET": [(0, ping(1) + ping(2) + get(K1)), 0],
    "unknown op 0x63": [(0, "63"), 0],
    "unknown op 19 (0x13)": [(0, "13"), 0],
    "GET missing key without WAIT": lambda key: [(0, get(key)), 0],
    "GET split byte by byte": [*bytewise(get(K1)), 0],
    "pipelined SET+GET+ADD+CHECK": after_setting("1", get, lambda key: add(key, 4), check),
    "WAIT duplicate existing keys": [(0, wait(K1, K1)), 0],
    "WAIT [dup,dup] missing, then set once; then GET": lambda key: [
        (0, wait(key, key)), 0, (1, put(key, "1")), 0, (0, get(key)), 0],
    "GET while WAIT pending; then key set": lambda key: [(0, wait(key) + get(K1)), 0, (1, put(key, "x")), 0],
    "two WAITs pending on one connection, x2 then x1 set": [
        (0, wait("/x1") + wait("/x2")), (1, put("/x2", "x")), 0, (1, put("/x1", "x")), 0],
    "CANCEL_WAIT with nothing pending": [(0, CANCEL), 0],
    "WAIT, CANCEL, then key set; GET": lambda key: [
        (0, wait(key) + CANCEL), 0, (1, put(key, "x")), 0, (0, get(K1)), 0],
    "WAIT satisfied + CANCEL in one segment": [(0, wait(K1) + CANCEL), 0],
    "WAIT[d1,d2]: set d1, delete d1, set d2": [
        (0, wait("/d1", "/d2")), (1, put("/d1", "x") + delete("/d1") + put("/d2", "x")), 0],
    "DEL nonexistent": lambda key: [(0, delete(key)), 0],
    "APPEND new + GET": lambda key: [(0, append(key, "abc") + get(key)), 0],
    "MULTI_GET with a missing key, no WAIT": lambda key: [(0, multi_get(K1, key, K1)), 0],
    'ADD on text "12abc"': after_setting("12abc", lambda key: add(key, 1)),
    'ADD on text " +12"': after_setting(" +12", lambda key: add(key, 1)),
    "ADD on empty value": after_setting("", lambda key: add(key, 1)),
    'ADD on text "abc"': after_setting("abc", lambda key: add(key, 1)),
    "ADD overflow max+1": after_setting(str(2**63 - 1), lambda key: add(key, 1), get),
    "ADD on 2^63 text (out of range)": after_setting(str(2**63), lambda key: add(key, 1)),
    "WAIT count 2^40": [(0, "06" + u64(2**40) + text(K1)), 0],
    "MULTI_GET count 0": [(0, multi_get() + get(K1)), 0],
    "WAIT count 0": [(0, wait()), 0],
    "key length 2^62": [(0, "03" + u64(2**62) + "2f"), 0],
    "other client works while one has sent half a request": [(0, get(K1)[:10]), (1, get(K1)), 1],
    "failing COMPARE_SET (absent, expected non-empty) wakes WAIT? then GET": lambda key: [
        (0, wait(key)), (1, compare_set(key, "exp", "des")), 1, 0, (0, get(key)), 0],
    "succeeding COMPARE_SET wakes WAIT?": lambda key: [(0, wait(key)), (1, compare_set(key, "", "des")), 1, 0],
    "MULTI_SET wakes WAIT?": woken_by(lambda key: multi_set(key, "x")),
    "APPEND wakes WAIT?": woken_by(lambda key: append(key, "x")),
    "QUEUE_LEN missing": lambda key: [(0, length(key)), 0],
    "QUEUE_POP empty": lambda key: [(0, pop(key)), 0],
    "QUEUE_PUSH x2, LEN, POP, POP, POP": lambda key: [
        (0, push(key, "a") + push(key, "bb") + length(key) + 3 * pop(key)), 0],
    "two waiters on a queue: push1 ->(c,d); push2 ->(c,d); len": lambda key: [
        (0, wait(key)), (1, wait(key)), (2, push(key, "a")), 0, 1, (2, push(key, "b")), 0, 1, (2, length(key)), 2],
    "waiter on name, released by plain SET": woken_by(lambda key: put(key, "x")),
    "WAIT[non-empty queue, missing], then missing set": lambda key: [
        (0, push(key + "q", "x") + wait(key + "q", key)), 0, (1, put(key, "x")), 0],
    "GET of a queue name": lambda key: [(0, push(key, "x") + get(key)), 0],
    "CHECK [queue name]": lambda key: [(1, push(key, "x")), (0, check(key)), 0],
    "DEL queue name, QLEN": lambda key: [(1, push(key, "x")), (0, delete(key) + length(key)), 0],
    "BARRIER ws=1": [(0, barrier("/b1", 1)), 0],
    "BARRIER ws=1 again": [(0, barrier("/b1", 1)), 0],
    "BARRIER ws=0": lambda key: [(0, barrier(key, 0)), 0],
    "BARRIER ws=-1": lambda key: [(0, barrier(key, -1)), 0],
    "GET barrier key": [(0, get("/b1")), 0],
    "BARRIER ws=2: first parked, then both": lambda key: [(0, barrier(key, 2)), 0, (1, barrier(key, 2)), 0, 1],
    "BARRIER ws=2: first disconnects, second arrives -> released early?": lambda key: [
        (0, barrier(key, 2)), LEAVE(0), (1, barrier(key, 2)), 1],
    "BARRIER ws=2: cancel, retry alone -> released early?": lambda key: [
        (0, barrier(key, 2) + CANCEL), 0, (0, barrier(key, 2)), 0],
    "parked BARRIER (ws 5) woken by SET on same key?": parked_then(lambda key: put(key, "x")),
    "parked BARRIER (ws 5) woken by ADD on same key?": lambda key: [
        (0, barrier(key, 5)), 0, (1, add(key, 1)), 0],
    "parked BARRIER (ws 5) woken by APP on same key?": parked_then(lambda key: append(key, "x")),
    "parked BARRIER (ws 5) woken by CAS on same key?": lambda key: [
        (0, barrier(key, 5)), 0, (1, compare_set(key, "1", "x")), 0],
    "parked BARRIER (ws 5) woken by QPUSH on same key?": parked_then(lambda key: push(key, "x")),
    "parked BARRIER (ws 5) woken by MSET on same key?": parked_then(lambda key: multi_set(key, "x")),
    "WAIT on barrier key woken by first BARRIER arrival?": lambda key: [
        (0, wait(key)), (1, barrier(key, 2)), 0, 1],
    "BARRIER on non-numeric key": after_setting("abc", lambda key: barrier(key, 2)),
    "BARRIER same key, ws=2 parked then ws=3 arrives": lambda key: [
        (0, barrier(key, 2)), 0, (1, barrier(key, 3)), 1],
}

NOTHING, CLOSED = "<nothing>", "<EOF>"

# Where our server differs from libuv's: a name of captures_test.cpp, and our answers.
OURS = {
    "VALIDATE byte by byte then GET": ("split_validate", ["02000000000000007631"]),
    "VALIDATE wrong magic + GET": ("no_validate", [CLOSED]),
    "no VALIDATE, GET, then GET again": ("no_validate", [NOTHING, CLOSED]),  # it was A's or C's ADD, to no number
    "no VALIDATE: SET (01) then GET": ("no_validate", [NOTHING, NOTHING]),  # A's or C's COMPARE_SET, not complete
    "HTTP GET request": ("no_validate", [CLOSED]),
    "failing COMPARE_SET (absent, expected non-empty) wakes WAIT? then GET": (
        "failed_compare_set", ["0300000000000000657870", NOTHING, "0000000000000000"]),
    "WAIT[non-empty queue, missing], then missing set": ("wait_for_queue_and_key", [NOTHING, "00"]),
}


def answers_of(record):
    result = record["result"]
    result = result if isinstance(result, list) else [result]
    return [answer.replace("<ConnectionResetError>", CLOSED) for answer in result]


def conversation(records, libuv):
    """Returns the lines of one server's file. `libuv` has the answers of the server that ours follows."""
    lines = ["= k1 = v1", "> 1000 " + HELLO + put(K1, "v1")]
    greeted = {1000}
    for place, record in enumerate(records):
        name = record["test"]
        if name not in ASKED:
            continue
        steps = ASKED[name](f"/key{place}") if callable(ASKED[name]) else ASKED[name]
        theirs = answers_of(record)
        difference, ours = OURS.get(name, ("", libuv[name]))
        if theirs != libuv[name]:
            difference = "server_without_libuv"
        lines.append(f"= {name}")
        closed, slot, answered = set(), 0, False
        read = {0, *(step for step in steps if isinstance(step, int))}
        for step in steps:
            if isinstance(step, LEAVE):
                lines.append(f"- {place * 10 + step}")
            elif isinstance(step, int):  # an answer was read here
                connection = place * 10 + step
                told, own = theirs[slot].replace(NOTHING, ""), ours[slot].replace(NOTHING, "")
                if told.replace(CLOSED, ""):
                    lines.append(f"< {connection} {told.replace(CLOSED, '')}")
                if own != told:
                    lines.append(f"~ {connection} {difference}")
                    if own.replace(CLOSED, ""):
                        lines.append(f"+ {connection} {own.replace(CLOSED, '')}")
                if CLOSED in own and connection not in closed:
                    lines.append(f"x {connection}")
                    closed.add(connection)
                slot, answered = slot + 1, True
            else:
                if answered:
                    lines.append(f"= {name}: then")
                    answered = False
                connection, request = place * 10 + step[0] if step[0] in read else 1000, step[1]
                if connection not in greeted and not request.startswith(RAW):
                    request = HELLO + request
                greeted.add(connection)
                lines.append(f"> {connection} {request.removeprefix(RAW)}")
        assert slot == len(theirs) == len(ours), name
    return lines
