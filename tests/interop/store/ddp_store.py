# SPDX-License-Identifier: BSD-3-Clause
"""libddp's stores, through the C interface, with the methods of torch.distributed's stores in Python."""
import ctypes
from datetime import timedelta

STATUS = ["ok", "invalid argument", "timeout", "peer lost", "aborted", "mismatch", "system", "corrupt"]


class Bytes(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("size", ctypes.c_size_t)]


class Delivered(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t)]


DELIVER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, Delivered)


class Sink(ctypes.Structure):
    _fields_ = [("context", ctypes.c_void_p), ("deliver", DELIVER)]


class DdpError(Exception):
    def __init__(self, status, text):
        super().__init__(text)
        self.status = STATUS[status]


def as_bytes(value):
    value = value.encode() if isinstance(value, str) else value
    return Bytes(value, len(value))


class Library:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.ddp_error_last.restype = ctypes.c_char_p
        self.lib.ddp_store_destroy.restype = None

    def call(self, function, *arguments):
        status = getattr(self.lib, function)(*arguments)
        if status != 0:
            raise DdpError(status, self.lib.ddp_error_last().decode())

    def read(self, function, *arguments):
        """Returns what a call delivers to a sink, its last argument."""
        values = []
        take = DELIVER(lambda _, value: values.append(ctypes.string_at(value.data, value.size)))
        self.call(function, *arguments, Sink(None, take))
        return values

    def create(self, kind, *arguments):
        handle = ctypes.c_void_p()
        self.call(f"ddp_store_create_{kind}", *arguments, ctypes.byref(handle))
        return Store(self, handle)

    def tcp(self, host, port, timeout, count_in=False):
        return self.create("tcp", host.encode(), port, milliseconds(timeout), int(count_in))

    def file(self, path, world_size, timeout=timedelta(seconds=30)):
        return self.create("file", path.encode(), ctypes.c_int64(world_size), milliseconds(timeout))

    def prefix(self, prefix, base):
        store = self.create("prefix", prefix.encode(), base.handle)
        store.base = base  # the base must outlive the store
        return store


def milliseconds(time):
    return ctypes.c_int64(0 if time is None else max(1, round(time.total_seconds() * 1000)))


class Store:
    def __init__(self, library, handle):
        self.library, self.handle, self.base = library, handle, None

    def close(self):
        if self.handle:
            self.library.lib.ddp_store_destroy(self.handle)
        self.handle = None

    __del__ = close

    def call(self, name, *arguments):
        self.library.call(f"ddp_store_{name}", self.handle, *arguments)

    def read(self, name, *arguments):
        return self.library.read(f"ddp_store_{name}", self.handle, *arguments)

    def number(self, kind, name, *arguments):
        result = kind()
        self.call(name, *arguments, ctypes.byref(result))
        return result.value

    def keys(self, keys):
        return (ctypes.c_char_p * len(keys))(*[key.encode() for key in keys]), ctypes.c_size_t(len(keys))

    def set_timeout(self, timeout):
        self.call("set_timeout", milliseconds(timeout))

    def set(self, key, value):
        self.call("set", key.encode(), as_bytes(value))

    def get(self, key):
        return self.read("get", key.encode(), milliseconds(None))[0]

    def add(self, key, delta):
        return self.number(ctypes.c_int64, "add", key.encode(), ctypes.c_int64(delta))

    def check(self, keys):
        return bool(self.number(ctypes.c_int32, "check", *self.keys(keys)))

    def wait(self, keys, timeout=None):
        self.call("wait", *self.keys(keys), milliseconds(timeout))

    def compare_set(self, key, expected, desired):
        return self.read("compare_set", key.encode(), as_bytes(expected), as_bytes(desired))[0]

    def append(self, key, value):
        self.call("append", key.encode(), as_bytes(value))

    def delete_key(self, key):
        return bool(self.number(ctypes.c_int32, "delete_key", key.encode()))

    def num_keys(self):
        return self.number(ctypes.c_int64, "num_keys")

    def list_keys(self):
        return [key.decode() for key in self.read("list_keys")]

    def multi_get(self, keys):
        return self.read("multi_get", *self.keys(keys), milliseconds(None))

    def multi_set(self, keys, values):
        self.call("multi_set", self.keys(keys)[0], (Bytes * len(values))(*map(as_bytes, values)),
                  ctypes.c_size_t(len(keys)))

    def queue_push(self, key, value):
        self.call("queue_push", key.encode(), as_bytes(value))

    def queue_pop(self, key, block=True):
        if block:
            return self.read("queue_pop", key.encode(), milliseconds(None))[0]
        popped = ctypes.c_int32()
        values = self.read("queue_try_pop", key.encode(), ctypes.byref(popped))
        if not popped.value:
            raise DdpError(2, "queue is empty")
        return values[0]

    def queue_len(self, key):
        return self.number(ctypes.c_int64, "queue_len", key.encode())

    def barrier(self, key, world_size, timeout=None):
        self.call("barrier", key.encode(), ctypes.c_int64(world_size), milliseconds(timeout))
