# SPDX-License-Identifier: BSD-3-Clause
"""Writes what a program (of Python 3.6 or later) observes of its interpreter and its process to
stdout, as JSON."""
import sys

# First of all, before anything is imported here.
MODULES = sorted(sys.modules)
MAIN = {name: repr(value) for name, value in list(vars(sys.modules["__main__"]).items()) if name not in ("sys", "MODULES")}

import atexit  # noqa: E402
import builtins  # noqa: E402
import ctypes  # noqa: E402
import faulthandler  # noqa: E402
import gc  # noqa: E402
import json  # noqa: E402
import linecache  # noqa: E402
import locale  # noqa: E402
import logging  # noqa: E402
import multiprocessing  # noqa: E402
import os  # noqa: E402
import random  # noqa: E402
import re  # noqa: E402
import resource  # noqa: E402
import signal  # noqa: E402
import stat  # noqa: E402
import tempfile  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402
import uuid  # noqa: E402
import warnings  # noqa: E402

LIBC = ctypes.CDLL(None, use_errno=True)
PR_GET_PDEATHSIG, PR_GET_DUMPABLE, PR_GET_CHILD_SUBREAPER, PR_GET_NO_NEW_PRIVS = 2, 3, 37, 39
PR_GET_TIMERSLACK, PR_GET_THP_DISABLE = 30, 42


def lines(path):
    with open(path, "rb") as file:
        return file.read().decode(errors="surrogateescape").splitlines()


def plain(value):
    return re.sub(r"0x[0-9a-f]+", "0x..", repr(value))


def descriptors():
    found = {}
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            target = os.readlink("/proc/self/fd/%d" % fd)
        except OSError:
            continue  # the descriptor of the listing itself
        position, flags, mount = lines("/proc/self/fdinfo/%d" % fd)[:3]
        kind = stat.S_IFMT(os.fstat(fd).st_mode)
        found[fd] = [re.sub(r"\[\d+\]", "", target), flags, kind, os.get_inheritable(fd), os.get_blocking(fd)]
    return found


def c_environment():
    environ = ctypes.POINTER(ctypes.c_char_p).in_dll(LIBC, "environ")
    found = []
    while environ[len(found)] is not None:
        found.append(environ[len(found)])
    return sorted(os.fsdecode(entry) for entry in found)


def c_number(function, *arguments):
    result = ctypes.c_int()
    function(*arguments, ctypes.byref(result))
    return result.value


def of_the_interpreter():
    streams = {name: getattr(sys, name) for name in ("stdin", "stdout", "stderr")}
    return {
        "main": {name: re.sub(r"0x[0-9a-f]+", "0x..", text) for name, text in MAIN.items()},
        "modules": MODULES,
        "argv": sys.argv,
        "orig_argv": getattr(sys, "orig_argv", None),
        "path": sys.path,
        "path_hooks": list(map(plain, sys.path_hooks)),
        "meta_path": list(map(plain, sys.meta_path)),
        "flags": plain(sys.flags),
        "options": [sys.warnoptions, plain(sys._xoptions), sys.dont_write_bytecode],
        "prefixes": [sys.executable, sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix],
        "hooks": [sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__,
                  plain(getattr(sys, "__interactivehook__", None)), sys.gettrace(), sys.getprofile(),
                  plain(getattr(sys, "breakpointhook", None)), plain(getattr(sys, "unraisablehook", None))],
        "limits": [sys.getrecursionlimit(), sys.getswitchinterval(), sys.getfilesystemencoding()],
        "streams": {name: [stream.name, stream.mode, stream.encoding, stream.errors, stream.line_buffering,
                           getattr(stream, "write_through", None), stream.fileno(), plain(stream.buffer)]
                    for name, stream in streams.items()},
        "streams are the first": all(getattr(sys, "__%s__" % name) is stream for name, stream in streams.items()),
        "builtins": sorted(vars(builtins)),
        "garbage": [gc.isenabled(), gc.get_threshold(), gc.get_debug(), len(gc.callbacks), len(gc.garbage)],
        "warnings": plain(warnings.filters),
        "locale": [locale.setlocale(locale.LC_ALL), time.tzname],
        "temporary": tempfile.gettempdir(),
        "faulthandler": faulthandler.is_enabled(),
        "lines kept": sorted(name for name in linecache.cache if not name.startswith("<")),
        "logging": [plain(logging.getLogger().handlers), logging.getLogger().level],
        "threading": [threading.active_count(), threading.current_thread() is threading.main_thread(),
                      plain(threading.current_thread().name), threading.current_thread().daemon,
                      getattr(threading.main_thread(), "native_id", os.getpid()) == os.getpid()],
        "multiprocessing": [multiprocessing.current_process().name, multiprocessing.current_process().pid == os.getpid(),
                            multiprocessing.current_process()._config.get("semprefix"),
                            len(multiprocessing.active_children()), multiprocessing.get_start_method(),
                            len(multiprocessing.current_process().authkey)],
    }


def of_the_process():
    status = dict(line.split(":\t", 1) for line in lines("/proc/self/status") if ":\t" in line)
    return {
        "leads": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
        "parent": lines("/proc/%d/comm" % os.getppid()),
        "name": lines("/proc/self/comm"),
        "prctl": {"death signal": c_number(LIBC.prctl, PR_GET_PDEATHSIG),
                  "subreaper": c_number(LIBC.prctl, PR_GET_CHILD_SUBREAPER),
                  "others": [LIBC.prctl(which, 0, 0, 0, 0) for which in
                             (PR_GET_DUMPABLE, PR_GET_NO_NEW_PRIVS, PR_GET_TIMERSLACK, PR_GET_THP_DISABLE)]},
        "status": {name: status.get(name) for name in
                   ("Umask", "State", "Uid", "Gid", "Groups", "Threads", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt",
                    "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Cpus_allowed_list",
                    "Mems_allowed_list")},
        "handlers": {number: plain(signal.getsignal(number)) for number in range(1, signal.NSIG)},
        "timers": [signal.getitimer(which) for which in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)],
        "wakeup": signal.set_wakeup_fd(-1),
        "threads": [lines("/proc/self/task/%s/comm" % thread) for thread in os.listdir("/proc/self/task")],
        "children": lines("/proc/self/task/%d/children" % os.getpid()),
        "descriptors": descriptors(),
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource)
                   if name.startswith("RLIMIT_")},
        "nice": [os.nice(0), os.sched_getscheduler(0), lines("/proc/self/oom_score_adj"), lines("/proc/self/personality")],
        "cpus": sorted(os.sched_getaffinity(0)),
        "cwd": [os.getcwd(), os.readlink("/proc/self/cwd"), os.readlink("/proc/self/root")],
        "executable": os.readlink("/proc/self/exe"),
        "cgroup": [re.sub(r"ddprun-[\w-]+", "ddprun-..", line) for line in lines("/proc/self/cgroup")],
        "environment": dict(os.environ),
        "environment in bytes": sorted(map(plain, os.environb.items())),
        "environment of C": c_environment(),
    }


def what_may_differ():
    """Returns what the test checks one by one."""
    return {
        "hash": hash("a"),
        "exit functions": atexit._ncallbacks(),  # one of them calls gc.unfreeze()
        "frozen": gc.get_freeze_count() if hasattr(gc, "get_freeze_count") else None,
        "command line": lines("/proc/self/cmdline"),
        "environment at start": sorted(lines("/proc/self/environ")[0].split("\0")),
        "random": [random.random(), str(uuid.uuid4()), os.urandom(8).hex(),
                   multiprocessing.current_process().authkey.hex()],
    }


json.dump({"interpreter": of_the_interpreter(), "process": of_the_process(), "may differ": what_may_differ()},
          sys.stdout, indent=1, sort_keys=True, default=repr)
