// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/report/failure_hint.hpp"

#include <catch2/catch.hpp>
#include <csignal>

using namespace ddp::launcher;
using ddp::rendezvous::WorkerFailure;
using Lines = std::vector<std::string>;

namespace {

std::string hint(const Lines& tail, int code = 1, int signal = 0, const std::string& message = "") {
  WorkerFailure failure;
  failure.status = {code, signal};
  failure.stderr_tail = tail;
  failure.message = message;
  return hint_for(failure, {.python = "/venv/bin/python"});
}

bool has(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

}  // namespace

TEST_CASE("failure hint: the messages of common errors lead to advice", "[launcher][unit]") {
  const struct {
    Lines tail;
    const char* says;
  } rows[] = {
      {{"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB."}, "smaller batch"},
      {{"RuntimeError: CUDA error: out of memory"}, "smaller batch"},
      {{"torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"}, "memory of a GPU failed"},
      {{"node1:77:90 [0] init.cc:729 NCCL WARN Mismatched NCCL version detected : rank 1 version 22809 rank 0 version "
        "23007"},
       "different versions of NCCL"},
      {{"train.py: error: the following arguments are required: --local-rank"}, "ddprun --legacy-local-rank passes it"},
      {{"train.py: error: the following arguments are required: --local_rank"},
       "--legacy-local-rank=underscore passes it"},
      {{"usage: train.py [-h] [--local_rank LOCAL_RANK]", "train.py: error: unrecognized arguments: --local-rank=0"},
       "ddprun --legacy-local-rank=underscore passes it"},
      {{"usage: train.py [-h] [--local-rank LOCAL_RANK]", "train.py: error: unrecognized arguments: --local_rank=0"},
       "ddprun --legacy-local-rank passes it"},
      {{"usage: train.py [-h] [--lr LR]", "train.py: error: unrecognized arguments: --local-rank=0"},
       "leave --legacy-local-rank out"},
      {{"ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm)."},
       "--shm-size"},
      {{"RuntimeError: DataLoader worker (pid 12) is killed by signal: Killed. "}, "num_workers"},
      {{"RuntimeError: DataLoader worker (pid 12) is killed by signal: Bus error. "}, "--shm-size"},
      {{"OSError: [Errno 98] Address already in use"}, "ss -ltnp"},
      {{"torch.distributed.DistNetworkError: ... port: 29500 ... code: -98, name: EADDRINUSE"}, "ss -ltnp"},
      {{"[rank1]: RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4242"},
       "lost another rank"},
      {{"torch.distributed.DistBackendError: NCCL error in: x.cpp:1", "ncclRemoteError: A call failed"},
       "lost another rank"},
      {{"[E ProcessGroupNCCL.cpp:1] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)"},
       "did not take part in time"},
      {{"RuntimeError: [gloo/unbound_buffer.cc:78] Timed out waiting 2000ms for recv operation to complete"},
       "did not take part in time"},
      {{"world: all_reduce #4: not done in 3 s: another rank is stopped, slow, or calls something else"},
       "did not take part in time"},
      {{"OSError: [Errno 24] Too many open files: 'x'"}, "ulimit -n"},
      {{"OSError: [Errno 28] No space left on device"}, "df -h"},
      {{"PermissionError: [Errno 13] Permission denied: '/data'"}, "ls -ld"},
      {{"MemoryError"}, "fewer or smaller workers"},
      {{"terminate called after throwing an instance of 'std::bad_alloc'", "  what():  std::bad_alloc"},
       "fewer or smaller workers"},
      {{"RuntimeError: Ninja is required to load C++ extensions"}, "pip install ninja"},
      {{"/usr/bin/env: \u2018python3\\r\u2019: No such file or directory"}, "Windows line ends"},
      {{"./a: error while loading shared libraries: libfoo.so.1: cannot open shared object file"}, "LD_LIBRARY_PATH"},
      {{"./a: /lib/libc.so.6: version `GLIBC_2.38' not found (required by ./a)"}, "built on a newer system"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.tail, hint(row.tail));
    CHECK(has(hint(row.tail), row.says));
  }
  CHECK(has(hint({}, 126, 0, "cannot execute ./train: Exec format error"), "another kind of machine"));
  CHECK(has(hint({}, 0, SIGKILL, "the timer of scope \"step\" expired (torch.distributed.elastic.timer)"),
            "longer than the program allows"));
  CHECK(has(hint({}, 1, 0, "Traceback (most recent call last):\nMemoryError"), "fewer or smaller workers"));
}

TEST_CASE("failure hint: for a missing module the Python that lacks it is named", "[launcher][unit]") {
  const std::string error = "ModuleNotFoundError: No module named 'yaml'";
  CHECK(has(hint({"Traceback (most recent call last):", error}), "'yaml' is not there for /venv/bin/python: install"));
  CHECK(has(hint({"[rank3]: " + error}), "PYTHON_EXEC"));
  CHECK(
      has(hint({"/venv/bin/python: No module named trainer"}), "'trainer' is not there for /venv/bin/python: install"));
  CHECK(
      hint({"/venv/bin/python: No module named t.__main__; 't' is a package and cannot be directly executed"}).empty());
  WorkerFailure failure;
  failure.status.code = 1;
  failure.stderr_tail = {error};
  CHECK(hint_for(failure, {}) == "install 'yaml' for the Python that runs this worker");
}

TEST_CASE("failure hint: errors that were survived, and words that only look similar, give none", "[launcher][unit]") {
  const Lines rows[] = {
      {"ModuleNotFoundError: No module named 'apex'", "going on without it", "a", "b", "c", "ValueError: no"},
      {"apex: ModuleNotFoundError: No module named 'apex'", "ValueError: no"},
      {"step 3: 2 of 8 GiB of CUDA memory used, none out of memory", "ValueError: no"},
      {"listening: the address is already in use by us", "ValueError: no"},
      {"gloo is the backend", "ValueError: no"},
      {"dataset: Connection refused, trying the mirror", "ValueError: no"},
      {"Timed out waiting for the mirror", "ValueError: no"},
      {"usage: 3 GiB", "ValueError: no"},
      {"ECC is on, 0 uncorrectable errors; NCCL version 2.28.9+cuda12.9", "ValueError: no"},
      {"MyMemoryError: no"},
      {"[rankings]: MemoryError"},
      {},
  };
  for (const Lines& row : rows) {
    CAPTURE(row);
    CHECK(hint(row).empty());
  }
  CHECK(hint({"MemoryError"}, 0).empty());
}

TEST_CASE("failure hint: words from before the exception that ended the worker give none, those of its causes do",
          "[launcher][unit]") {
  const std::string full = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.";
  const std::string trace = "Traceback (most recent call last):",
                    cause = "The above exception was the direct cause of the following exception:";
  CHECK(hint({full + " Trying again", trace, "  File \"a.py\", line 1, in <module>", "KeyError: 'x'"}).empty());
  CHECK(hint({trace, full, "trying again", "[rank1]: " + trace, "[rank1]: KeyError: 'x'"}).empty());
  CHECK(hint({full, "trying again", "a", "b", "c", "stopped by the program itself"}).empty());
  CHECK(has(hint({"KeyError: 'x'", trace, full}), "smaller batch"));
  CHECK(has(hint({trace, full, cause, trace, "KeyError: 'x'"}), "smaller batch"));
  CHECK(has(hint({full, cause, trace, "KeyError: 'x'"}), "smaller batch"));
  CHECK(has(hint({"what(): " + full, "1", "2", "3", "4", "frame #5"}, 0, SIGABRT), "smaller batch"));
}

TEST_CASE("failure hint: a worker that found its stdin empty is advised to take --stdin", "[launcher][unit]") {
  WorkerFailure failure;
  failure.status.code = 1;
  for (const char* line : {"bdb.BdbQuit", "[rank1]: bdb.BdbQuit", "EOFError: EOF when reading a line"}) {
    failure.stderr_tail = {"Traceback (most recent call last):", line};
    CHECK(has(hint_for(failure, {.has_stdin = false}), "--stdin RANK"));
    CHECK(hint_for(failure, {.has_stdin = true}).empty());
  }
}

TEST_CASE("failure hint: a lost connection to a rank that had ended with 0 names that rank", "[launcher][unit]") {
  WorkerFailure failure;
  failure.status.code = 1;
  failure.stderr_tail = {"RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4242"};
  CHECK(has(hint_for(failure, {.ended_before = {0, 2}}), "ranks 0, 2 had already exited with code 0"));
  failure.stderr_tail = {"ValueError: no"};
  CHECK(hint_for(failure, {.ended_before = {0}}).empty());
}

TEST_CASE("failure hint: what the kernel says of the GPU's memory comes before the worker's own words",
          "[launcher][unit]") {
  WorkerFailure failure;
  failure.status.code = 1;
  failure.message = "RuntimeError: CUDA error: an illegal memory access was encountered";
  const std::string text = hint_for(failure, {.gpu_fault = "the kernel's log has Xid 94 of the GPU at 0000:3b:00"});
  CHECK(has(text, "memory of a GPU failed"));
  CHECK(has(text, "(the kernel's log has Xid 94 of the GPU at 0000:3b:00)"));
}

TEST_CASE("failure hint: wrong usage is code 2 with a usage line and an error", "[launcher][unit]") {
  const Lines said = {"usage: train.py [-h] --lr LR", "train.py: error: argument --lr: invalid float value: 'x'"};
  CHECK(has(hint(said, 2), "did not accept its arguments"));
  CHECK(hint(said, 1).empty());
  CHECK(hint({said[1]}, 2).empty());
}

TEST_CASE("failure hint: without a message the signal gives a hint, also through a shell", "[launcher][unit]") {
  CHECK(has(hint({}, 0, SIGKILL), "dmesg"));
  CHECK(has(hint({}, 137), "dmesg"));
  CHECK(has(hint({}, 0, SIGBUS), "/dev/shm"));
  CHECK(has(hint({}, 0, SIGILL), "/proc/cpuinfo"));
  CHECK(has(hint({}, 0, SIGSEGV), "PYTHONFAULTHANDLER"));
  CHECK(has(hint({}, 0, SIGSEGV, "SIGSEGV\nbacktrace:\n./a(+0x12)[0x34]"), "addr2line"));
  CHECK(hint({}, 0, SIGSEGV, "SIGSEGV\nbacktrace:\n./a(main+0x12)[0x34]\n./b(+0x1)[0x2]").empty());
  CHECK(hint({}, 0, SIGTERM).empty());
  CHECK(hint({}, 1).empty());
}

TEST_CASE("failure hint: the kernel's evidence of lack of memory comes before all messages", "[launcher][unit]") {
  WorkerFailure failure;
  failure.status.signal = SIGKILL;
  failure.out_of_memory = "the kernel said so";
  failure.stderr_tail = {"CUDA out of memory"};
  CHECK(has(hint_for(failure, {}), "more memory for the job"));
}
