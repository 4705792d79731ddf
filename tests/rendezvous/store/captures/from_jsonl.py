# SPDX-License-Identifier: BSD-3-Clause
"""Writes the conversations that captures_test.cpp replays, from recordings between PyTorch clients and servers.

usage: from_jsonl.py FOLDER_OF_RECORDINGS      writes torch-*.txt beside this script

What a line says:
  = words      a call begins: what was answered in the one before is compared
  > N hex      sent to the server on connection N, in one piece; 1000 is a second client, see SECOND_CLIENT
  < N hex      what PyTorch's server then answered
  ~ N name     that answer is not ours; ours stands in the same call as "+ N hex", if there is one at all, and
               captures_test.cpp says under this name why
  x N          the connection was closed by the server
  - N          the client closed it
Answers of one call on one connection count as one. Polling that the recording collapsed is written once.
"""
import json
import os
import sys

from raw_server import answers_of, conversation, text, u64


class Encoder:
    """Requests of a second client of the same generation. Old numbers are Modern's, minus one; A deletes with 8."""

    def __init__(self, generation):
        self.generation = generation

    def number(self, modern):
        if self.generation == "Modern" or (self.generation == "A" and modern == 8):
            return f"{modern:02x}"
        return f"{modern - 1:02x}"

    def set(self, key, value):
        return self.number(1) + text(key) + text(value)

    def compare_set(self, key, expected, desired):
        return self.number(2) + text(key) + text(expected) + text(desired)

    def add(self, key, delta):
        return self.number(4) + text(key) + u64(delta)

    def delete(self, key):
        return self.number(8) + text(key)

    def append(self, key, value):
        return self.number(9) + text(key) + text(value)

    def multi_set(self, *pairs):
        return self.number(11) + u64(len(pairs)) + "".join(text(key) + text(value) for key, value in pairs)

    def queue_push(self, key, value):
        return "0e" + text(key) + text(value)

    def barrier(self, key, world):
        return "12" + text(key) + u64(world)


# Requests of a second client, by the beginning of the call's name. The recordings hold one client only; keys and
# operations of the second are the recorded ones, its values are ours, and no answer depends on them.
SECOND_CLIENT = {
    "wait [late1] ": lambda e: [e.set("/late1", "x")],
    "wait [late2] ": lambda e: [e.add("/late2", 1)],
    "wait [late3] ": lambda e: [e.compare_set("/late3", "", "xx")],
    "wait [late4] ": lambda e: [e.compare_set("/late4", "zz", "xx")],
    "wait [late5] ": lambda e: [e.append("/late5", "x")],
    "wait [late6,late7] ": lambda e: [e.multi_set(("/late6", "x"), ("/late7", "x"))],
    "wait [a1,a2]": lambda e: [e.set("/a1", "x"), e.delete("/a1"), e.set("/a2", "x")],
    "after wait timeout: set nope": lambda e: [e.set("/nope", "x"), e.delete("/nope")],
    "queue_pop block=True satisfied": lambda e: [e.queue_push("/q", "late")],
    "barrier world_size=2 released": lambda e: [e.barrier("/bar2", 2)],
    "CROSS: wait [cross1] ": lambda e: [e.set("/cross1", "x")],
}

# (recordings, beginning of the call's name): the difference's name and our answer. "" as a recording: all of them.
NO_CANCEL = ("1.13.1", "2.0.1")
COMPARE_SET_WAKES_NOBODY = ("2.1.2", "2.2.2", "2.15.0.legacy_server")
COMPARE_SET_WAKES_ALWAYS = ("2.5.1", "2.12.1", "2.15.0")
DIFFERENCES = {
    (NO_CANCEL, "wait [late3] "): ("compare_set_wakes", "00"),
    (NO_CANCEL, "after wait timeout: set nope"): ("abandoned_wait", "0002000000000000007632"),
    (COMPARE_SET_WAKES_NOBODY, "wait [late3] "): ("compare_set_wakes", "0001"),
    (COMPARE_SET_WAKES_ALWAYS, "wait [late4] "): ("failed_compare_set", ""),
    (("2.12.1", "2.15.0"), "list_keys"): ("order_of_keys", None),
    (("2.12.1", "2.15.0"), "PrefixStore(pfx).list_keys"): ("order_of_keys", None),
    (("2.15.0.legacy_server",), "list_keys"): ("order_of_keys", None),
    (("2.15.0.legacy_server",), "PrefixStore(pfx).list_keys"): ("order_of_keys", None),
}


def generation(name):
    return {"1.13.1": "A", "2.0.1": "A", "2.1.2": "C"}.get(name.split(".init")[0], "Modern")


def starting(table, call):
    for beginning, entry in table.items():
        if call.startswith(beginning):
            return entry
    return None


def calls(name, records):
    """Writes the conversation of one client, call after call."""
    encoder = Encoder(generation(name))
    differences = {call: entry for (names, call), entry in DIFFERENCES.items() if name in names}
    second_began = encoder.generation != "Modern"
    lines = []
    for record in records:
        call = record["op"]
        lines.append(f"= {call}")
        second = starting(SECOND_CLIENT, call)
        difference = starting(differences, call)
        for frame in record["frames"]:
            connection = frame["conn"]
            canceled = ""
            if frame["who"] == "c":
                request = frame["hex"]
                if second and request.endswith(encoder.number(12)):  # WAIT, time passes, CANCEL_WAIT
                    request, canceled = request[:-2], request[-2:]
                lines.append(f"> {connection} {request}")
            if second:
                if not second_began:
                    lines.append("> 1000 00cef7853c")
                    second_began = True
                lines += [f"> 1000 {request}" for request in second(encoder)]
                second = None
            if canceled:
                lines.append(f"> {connection} {canceled}")
            if frame["who"] == "s":
                lines.append(f"< {connection} {frame['hex']}")
            elif frame["who"] == "server-close":
                lines.append(f"x {connection}")
        if difference:
            lines.append(f"~ {connection} {difference[0]}")
            if difference[1]:
                lines.append(f"+ {connection} {difference[1]}")
    return lines


def jobs(records):
    """Writes the conversations of several clients at once, in order of time. Requests of two clients may overtake each
    other between the recorder and the server, so a request that is answered at once counts as sent when its answer was
    seen."""
    events = []
    for place, record in enumerate(record for record in records if "op" in record):
        connection, at = record["conn"], record["t_ms"]
        answered = at + record.get("reply_ms", 0)
        if record["op"] == "CLOSE":
            events.append((at, place, f"- {connection}"))
        if record.get("client"):
            events.append((at if record["op"] == "WAIT" else answered, place, f"> {connection} {record['client']}"))
        if record.get("server"):
            events.append((answered, place + 0.5, f"< {connection} {record['server']}"))
    return ["= the whole job", *(line for _, _, line in sorted(events))]


def recorded(folder, file):
    with open(os.path.join(folder, file), encoding="utf-8") as recording:
        return [json.loads(line) for line in recording]


def main(folder):
    here = os.path.dirname(os.path.abspath(__file__))
    libuv = {record["test"]: answers_of(record) for record in recorded(folder, "raw_server_2.15.0_libuv.jsonl")
             if not isinstance(record["result"], bool)}
    for file in sorted(os.listdir(folder)):
        if not file.endswith(".jsonl"):
            continue
        name, records = file.removesuffix(".jsonl"), recorded(folder, file)
        if "test" in records[0]:
            lines = conversation(records, libuv)
        else:
            lines = calls(name, records) if "frames" in records[0] else jobs(records)
        with open(os.path.join(here, f"torch-{name}.txt"), "w", encoding="utf-8") as out:
            out.write(f"# From {file}; from_jsonl.py says what the lines mean.\n")
            out.write("\n".join(lines) + "\n")


main(sys.argv[1])
