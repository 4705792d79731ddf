# SPDX-License-Identifier: BSD-3-Clause
"""The warm parent: a Python process that imports modules and forks workers (--preload). It runs in
the user's interpreter.

    ddprun ─▶ python -u -c GUARD -u script.py ...   this file is its sitecustomize, from a zip file in memory
           ─▶ python -u script.py ...               the same process after exec, with a worker's command line;
                 this file, again its sitecustomize, imports, sends READY, and forks at each request
                 └ an intermediate process, which forks workers and ends: ddprun, a subreaper, inherits them
                     └ worker: waits at ddprun's gate, applies its environment, descriptors and CPUs, and
                       returns from this file; the interpreter goes on to the program on its command line

All this happens while `site` is imported, before the interpreter reads its program. So `__main__`,
`-m`, tracebacks and exit codes are Python's own, and no frame of this file is below the program's.
If this file is not imported (python -I, -S, or a wrapper that changes the environment), GUARD runs:
it ends the interpreter, and no program has run.

ddprun (warm_parent.cpp) sends requests over a socket, one byte for every three descriptors. The
first three are a file in memory with the workers' words, each ended by NUL, the gate and the status
pipe. Then follow the descriptors that become 0, 1 and 2 of each worker. The answers are frames
(rendezvous/wire/frame.hpp, parent_messages.hpp): READY "SECONDS MODULES", FORKED "PID PID ...", GIVES_UP "WHY".
"""
import os
import sys

VARIABLE = "DDPRUN_WARM_PARENT"  # "<socket's number> <number of words from -u on> <modules>"
GUARD = "raise SystemExit(78)"  # kGuard of warm_parent.cpp
OLDEST = (3, 8)  # older Pythons have no sys.argv at this point
OWN_PATH = "/proc/self/fd/"
MARK = b"DDPRUN_INCARNATION="  # ddprun finds a worker's descendants by it, in the environment that /proc shows
OWN_NAME = "ddprun warm"
PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_CHILD_SUBREAPER, PR_SET_PTRACER = 1, 15, 36, 0x59616d61
NEVER_RAN = 127
READY, FORKED, GIVES_UP = b"r\x01", b"p\x01", b"g\x01"  # FrameKind and kWireVersion of rendezvous/wire/frame.hpp
BIND = 0  # ExecFailure::Step of launcher/process/start_gate.hpp

# With these settings, libraries start no threads when they are loaded. OpenBLAS starts its threads
# in the workers, and Arrow's jemalloc frees memory without a thread.
WITHOUT_THREADS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
# What worker_environment() adds to node_environment(): a module that reads one of these in the
# parent would find it unset.
WORKERS_OWN = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE",
               "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS",
               "TORCHELASTIC_ERROR_FILE"}

UNSEEDED = []  # random generators that modules made and did not seed; each worker seeds them again


class Refused(Exception):
    """Says why no worker can be forked from this process."""


def frame(kind, payload):
    return struct.pack(">I", len(kind + payload)) + kind + payload


def words_of(data):
    return [os.fsdecode(word) for word in data.split(b"\0")[:-1]]


# ---- before the program ----

def command_line():
    with open("/proc/self/cmdline", "rb") as file:
        return words_of(file.read())


def import_own(auto_code):
    """Imports what this file needs before the program's folder, which may have modules of the
    same names, is on the path. `auto_code` is the code of auto_imports.py."""
    global PathFinder, array, atexit, auto_imports, ctypes, gc, import_module, random, socket, struct, time
    import array
    import atexit
    import ctypes
    import gc
    import random
    import socket
    import struct
    import time
    from importlib import import_module
    from importlib.machinery import PathFinder
    auto_imports = type(sys)("auto_imports")
    exec(auto_code, vars(auto_imports))


def become_program(words):
    """Replaces the guard's interpreter by the program's, which imports this file for certain."""
    guard = words.index(GUARD)
    # Words that a wrapper of the interpreter put before `-u -c GUARD` stay.
    os.execv(sys.executable or "/proc/self/exe", words[:guard - 2] + words[guard + 1:])


def descriptors():
    found = {}
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            found[fd] = os.readlink("/proc/self/fd/%d" % fd)
        except OSError:
            pass  # the descriptor of the listing itself
    return found


def threads():
    """Names of all other threads: Python's name if Python started the thread, else the kernel's."""
    threading = sys.modules.get("threading")
    named = {thread.native_id: thread.name for thread in threading.enumerate()} if threading else {}
    found = []
    for thread in map(int, os.listdir("/proc/self/task")):
        if thread != os.getpid():
            with open("/proc/self/task/%d/comm" % thread) as file:
                found.append(named.get(thread) or file.read().strip().replace(OWN_NAME, "one without a name"))
    return found


def has_cuda():
    """Returns whether CUDA is initialised, which does not survive a fork."""
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return False
    count = ctypes.c_int()
    return driver.cuDeviceGetCount(ctypes.byref(count)) != 3  # CUDA_ERROR_NOT_INITIALIZED


HARMLESS = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")  # workers may share these


class Beginning:
    """State of the process before anything was imported, which imports must not change."""

    def __init__(self, socket_fd):
        self.pid, self.settings = os.getpid(), self.settings_now()
        self.socket_fd, self.socket = socket_fd, descriptors()[socket_fd]

    @staticmethod
    def settings_now():
        """Settings that the interpreter uses before the program could change them."""
        with open("/proc/self/status") as file:
            status = dict(line.rstrip("\n").partition(":\t")[::2] for line in file)
        return {"the working directory": os.readlink("/proc/self/cwd"), "the umask": status.get("Umask"),
                "the blocked signals": status["SigBlk"], "sys.argv": list(sys.argv)}


def check(what, beginning):
    """Raises Refused if `what` left something that does not survive a fork."""
    if os.getpid() != beginning.pid:
        os._exit(NEVER_RAN)  # the import has forked, and this is the child
    for setting, now in beginning.settings_now().items():
        if now != beginning.settings[setting]:
            raise Refused("%s changed %s" % (what, setting))
    running = threads()
    if running:
        raise Refused("%s started %s: %s" % (what, "a thread" if len(running) == 1 else "%d threads" % len(running),
                                             ", ".join(running)))
    opened = descriptors()
    if opened.get(beginning.socket_fd) != beginning.socket:
        time.sleep(60)  # the import closed the socket; ddprun notices and ends this process
        os._exit(NEVER_RAN)
    for fd, target in opened.items():
        if fd > 2 and fd != beginning.socket_fd and target not in HARMLESS:
            kind = target.partition(":")[0]
            raise Refused("%s opened %s" % (what, "a " + kind if kind in ("pipe", "socket") else target))
    try:
        os.waitpid(-1, os.WNOHANG)
        raise Refused(what + " started a process")
    except ChildProcessError:
        pass
    if has_cuda():
        raise Refused(what + " initialised CUDA")


class Imports:
    """Records what modules do while they are imported that each worker's own import would do
    differently."""

    def __enter__(self):
        # Generators without a seed, by their ids. A generator that a module seeds is equal in all
        # workers anyway.
        self.unseeded, self.seed = {}, random.Random.seed
        self.reads, self.look_up = [], type(os.environ).__getitem__

        def seed(generator, a=None, version=2):
            if a is None:
                self.unseeded[id(generator)] = generator
            else:
                self.unseeded.pop(id(generator), None)
            self.seed(generator, a, version)

        def look_up(environment, variable):
            if variable in WORKERS_OWN:
                caller = sys._getframe(1)
                while caller.f_back and caller.f_globals.get("__name__") in ("os", "collections.abc"):
                    caller = caller.f_back
                self.reads.append((variable, caller.f_code.co_filename, caller.f_lineno))
            return self.look_up(environment, variable)

        random.Random.seed, type(os.environ).__getitem__ = seed, look_up
        return self

    def __exit__(self, *_):
        random.Random.seed, type(os.environ).__getitem__ = self.seed, self.look_up

    def check(self, what):
        for variable, file, line in self.reads:
            raise Refused("%s read %s (%s, line %d), which each worker has its own" % (what, variable, file, line))
        weakref = sys.modules.get("weakref")
        for last_act in getattr(weakref and weakref.finalize, "_registry", {}).values():
            if getattr(last_act.func, "__qualname__", "") == "TemporaryDirectory._cleanup":
                raise Refused(what + " made a temporary folder, which the first worker to end would remove")


def forget_shadowed(names, path):
    """Unloads those of these modules that the program's folder has too, so that the program
    imports its own."""
    for name in names:
        if "." not in name and name not in sys.builtin_module_names and PathFinder.find_spec(name, [path]):
            for loaded in [other for other in sys.modules if other == name or other.startswith(name + ".")]:
                del sys.modules[loaded]


def preload(modules, words, beginning, before_own):
    """Imports modules as the program would, with its folder on the path. Returns the modules
    that were imported, and the changes that the imports made to the environment: {variable:
    (before, after)}."""
    main = sys.modules["__main__"]
    own_path = auto_imports.path_of_program(words)
    kept = {variable: os.environ.get(variable) for variable in WITHOUT_THREADS}
    os.environ.update(WITHOUT_THREADS)
    environment = dict(os.environ)
    if own_path is not None:
        sys.path.insert(0, own_path)
        forget_shadowed(set(sys.modules) - before_own, own_path)
    chosen = auto_imports.modules_for(words) if modules == "auto" else [(module, ()) for module in modules.split(",")]
    if not chosen:
        raise Refused("none of the program's imports is known to be safe")
    if words[1] not in ("-m", "-c"):
        main.__file__ = words[1]
    check("the start of Python", beginning)
    with Imports() as imports:
        for module, names in chosen:
            try:
                imported = import_module(module)
                for name in names:
                    if name != "*" and not hasattr(imported, name):
                        import_module(module + "." + name)
            except BaseException as error:
                if modules != "auto" or not isinstance(error, Exception):
                    raise Refused("importing %s failed: %s: %s" % (module, type(error).__name__, error))
                # else it fails in the program too, which may handle that
            check("importing " + module, beginning)
            imports.check("importing " + module)
    UNSEEDED.extend(imports.unseeded.values())
    if own_path is not None:
        sys.path.remove(own_path)
        sys.path_importer_cache.pop(own_path, None)
    if hasattr(main, "__file__"):
        del main.__file__
    changes = {name: (environment.get(name), os.environ.get(name)) for name in {*environment, *os.environ}
               if environment.get(name) != os.environ.get(name) and name not in WITHOUT_THREADS}
    for variable, value in kept.items():
        os.environ.pop(variable, None)
        if value is not None:
            os.environ[variable] = value
    imported = [module for module in dict(chosen) if module in sys.modules]
    if not imported:
        raise Refused("none of the program's imports is there")
    return imported, changes


# ---- the parent ----

class Worker:
    """A worker's part of a request."""

    def __init__(self, words):
        take = iter(words)
        self.arguments = [next(take) for _ in range(int(next(take)))]
        self.environment = [next(take) for _ in range(int(next(take)))]
        self.cpus = {int(next(take)) for _ in range(int(next(take)))}
        self.rest = list(take)


def receive(ddprun):
    """Returns a request: (workers, gate, status, [descriptors 0, 1, 2 of each]); None if ddprun
    is gone."""
    room = socket.CMSG_SPACE(3 * array.array("i").itemsize)

    def next_three():
        data, ancillary, _, _ = ddprun.recvmsg(1, room)
        fds = array.array("i")
        for _, _, content in ancillary:
            fds.frombytes(content)
        return tuple(fds) if data else None

    first = next_three()
    if first is None:
        return None
    os.lseek(first[0], 0, os.SEEK_SET)
    with open(first[0], "rb") as file:
        words = words_of(file.read())
    workers = []
    for _ in range(int(words.pop(0))):
        worker = Worker(words)
        words = worker.rest
        workers.append(worker)
    return workers, first[1], first[2], [next_three() for _ in workers]


def fork_workers(ddprun, request, own):
    """Forks and answers the request. Returns None in the parent, and the arguments of
    take_place() in a worker."""
    workers, gate, status, standard = request
    # A fork copies page tables, which takes 10 ms with PyTorch. Several intermediate processes fork
    # at the same time.
    parts = min(len(os.sched_getaffinity(0)), max(1, int(len(workers) ** 0.5)))
    between, answers = [], []
    for part in range(parts):
        try:
            answer, tell = os.pipe()
            pid = os.fork()
        except OSError as error:
            answers.append(b"fork: " + error.strerror.encode())
            break
        if pid == 0:
            line = b""
            for index in range(len(workers) * part // parts, len(workers) * (part + 1) // parts):
                try:
                    pid = os.fork()
                except OSError as error:
                    line = b"fork of worker %d of %d: %s" % (index, len(workers), error.strerror.encode())
                    break
                if pid == 0:
                    ddprun.detach()
                    return index, workers[index], gate, status, standard, own
                line += b" %d" % pid
            os.write(tell, line + b"\n")
            os._exit(0)
        os.close(tell)
        between.append((pid, answer))
    for fd in (gate, status, *(fd for three in standard for fd in three)):
        os.close(fd)
    for pid, answer in between:
        with open(answer, "rb") as file:
            answers.append(file.readline().strip() or b"it was killed while it forked")
        os.waitpid(pid, 0)  # now ddprun is the parent of its workers
    failures = [answer for answer in answers if not answer.replace(b" ", b"").isdigit()]
    ddprun.sendall(frame(GIVES_UP, failures[0]) if failures else frame(FORKED, b" ".join(answers)))
    return None


def own_place():
    """Returns what workers need to know of the parent: (ddprun's pid, the interpreter's name,
    address of the mark in the environment that /proc shows)."""
    with open("/proc/self/environ", "rb") as file:
        offset = file.read().find(MARK)
    with open("/proc/self/stat", "rb") as file:
        env_start = int(file.read().rpartition(b")")[2].split()[47])
    with open("/proc/self/comm", "rb") as file:
        name = file.read().strip()
    return os.getppid(), name, env_start + offset + len(MARK) if offset >= 0 else None


def serve(socket_fd, program, modules, auto_code):
    """Imports, forks at each request, and ends with ddprun. Returns in a worker only: the
    arguments of take_place()."""
    before = set(sys.modules)
    import_own(auto_code)
    began = time.monotonic()
    ddprun = socket.socket(fileno=socket_fd)
    ddprun.set_inheritable(False)
    own = own_place()
    libc = ctypes.CDLL(None)
    try:
        if sys.version_info < OLDEST:
            raise Refused("this is Python %d.%d, and %d.%d is the oldest that can" % (sys.version_info[:2] + OLDEST))
        libc.prctl(PR_SET_NAME, OWN_NAME.encode())
        # As a subreaper, this process inherits the orphans of imports, and so check() finds them.
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
        imported, changes = preload(modules, program, Beginning(socket_fd), before)
        libc.prctl(PR_SET_CHILD_SUBREAPER, 0)
    except Refused as why:
        ddprun.sendall(frame(GIVES_UP, str(why).replace("\n", " ").encode(errors="replace")))
        return os._exit(0)
    for stream in (sys.stdout, sys.stderr):  # -u disables buffers, but a sitecustomize may replace a stream
        if stream is not None:
            stream.flush()
    gc.collect()
    gc.freeze()  # else a collection in a worker would write to pages that all share
    ddprun.sendall(frame(READY, ("%.3f %s" % (time.monotonic() - began, ",".join(imported))).encode()))
    while True:
        request = receive(ddprun)
        if request is None:
            os._exit(0)
        given = fork_workers(ddprun, request, own + (changes,))
        if given is not None:
            return given


# ---- the worker ----

def take_place(index, worker, gate, status, standard, own):
    """Makes this process a worker, as launcher/process/spawner.cpp does between fork and exec."""
    agent, name, mark, changes = own
    os.setsid()
    for number, fd in enumerate(standard[index]):
        os.dup2(fd, number)  # inheritable
    received = {fd for three in standard for fd in three}
    for fd, target in descriptors().items():
        if fd in received or fd > 2 and fd not in (gate, status) and target not in HARMLESS:
            os.close(fd)
    if os.read(gate, 1) != b"g":
        os._exit(NEVER_RAN)
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_PDEATHSIG, 9)
    if os.getppid() != agent:
        os._exit(NEVER_RAN)
    libc.prctl(PR_SET_PTRACER, agent)
    libc.prctl(PR_SET_NAME, name)
    if worker.cpus:
        try:
            os.sched_setaffinity(0, worker.cpus)
        except OSError as error:
            os.write(status, struct.pack("iii", index, BIND, error.errno))
            os._exit(NEVER_RAN)
    os.close(gate)
    os.close(status)
    os.environ.clear()
    for entry in worker.environment:
        variable, _, value = entry.partition("=")
        os.environ[variable] = value
        if mark and os.fsencode(variable) + b"=" == MARK:
            with open("/proc/self/mem", "r+b", buffering=0) as memory:
                memory.seek(mark)
                memory.write(os.fsencode(value))
    for variable, (before, after) in changes.items():
        if os.environ.get(variable) != before:
            continue  # the worker was given a value of its own
        if after is None:
            del os.environ[variable]
        else:
            os.environ[variable] = after


def make_fresh(arguments):
    """Gives the interpreter what differs from one fresh interpreter to the next."""
    sys.argv[1:] = arguments[len(arguments) - len(sys.argv) + 1:]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[len(sys.orig_argv) - len(arguments) + 1:] = arguments[1:]
    atexit.register(gc.unfreeze)  # so that the collection at exit reaches these objects too
    loaded = sys.modules.get
    if loaded("threading") and hasattr(loaded("threading").main_thread(), "_set_native_id"):
        loaded("threading").main_thread()._set_native_id()  # Python before 3.13 keeps the parent's id
    for generator in UNSEEDED:
        generator.seed()
    if loaded("numpy.random"):
        loaded("numpy.random").seed()
    if hasattr(loaded("torch"), "default_generator"):
        loaded("torch").default_generator.seed()
    if loaded("multiprocessing.process"):
        loaded("multiprocessing.process").current_process().authkey = os.urandom(32)
    if loaded("numpy"):
        start_blas_threads()


def start_blas_threads():
    """Starts as many threads as OpenBLAS would have started when it was loaded."""
    for variable in ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS"):
        if os.environ.get(variable, "").isdigit() and int(os.environ[variable]) > 0:
            count = int(os.environ[variable])
            break
    else:
        count = len(os.sched_getaffinity(0))
    if count == 1:
        return
    with open("/proc/self/maps") as file:
        libraries = {line.split(None, 5)[5].strip() for line in file if "openblas" in line}
    for path in libraries:
        library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        for name in ("scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads",
                     "openblas_set_num_threads64_", "openblas_set_num_threads"):
            if hasattr(library, name):
                getattr(library, name)(count)
                break


def leave_path():
    """Takes the archive of this file off the path, and runs the user's sitecustomize, which this
    file hides."""
    import site
    own, _, others = os.environ.pop("PYTHONPATH").partition(":")
    if others:
        os.environ["PYTHONPATH"] = others
    sys.path.remove(own)
    sys.path_importer_cache.pop(own, None)
    os.close(int(own[len(OWN_PATH):]))
    del sys.modules["sitecustomize"]
    site.execsitecustomize()


def main():
    try:
        words = command_line()
        if GUARD in words:
            become_program(words)
        socket_fd, count, modules = os.environ.pop(VARIABLE).split(" ")
        auto_code = __loader__.get_code("auto_imports")  # while the archive is open
        leave_path()
        given = serve(int(socket_fd), words[-int(count):], modules, auto_code)
        take_place(*given)
        make_fresh(given[1].arguments)
    except BaseException:
        import traceback
        traceback.print_exc()
        os._exit(NEVER_RAN)  # the program must not run in a process that is no worker


if VARIABLE in os.environ:  # not set in a process that the parent started while this file was on the path
    main()
if "sitecustomize" not in sys.modules:
    sys.modules["sitecustomize"] = None  # the importer removes it, and zipimport of Python 3.9 needs it there
    raise ImportError(name="sitecustomize")  # as if there were none
