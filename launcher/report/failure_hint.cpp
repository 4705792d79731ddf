// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/report/failure_hint.hpp"

#include <algorithm>
#include <csignal>
#include <sstream>
#include <string_view>
#include <vector>

#include "launcher/text/ranges.hpp"

namespace ddp::launcher {

using rendezvous::WorkerFailure;

namespace {

enum class Where {
  InTheError,  // in its error; or on its stderr from the traceback of the last exception on, or near the end
  Anywhere,    // in its error or the last lines of its stderr: text that no program goes on after
  AtTheEnd,    // at the beginning of one of the last lines: earlier ones it may have survived
};

struct Symptom {
  Where where;
  std::vector<const char*> words;  // all of them occur
  const char* hint;
};

constexpr std::size_t kEndLines = 5;  // PyTorch and Python may say a few things after the error

constexpr char kGpuFull[] =
    "the GPU's memory is full: use a smaller batch or activation checkpointing, or see in nvidia-smi what else uses it";
constexpr char kHostFull[] =
    "this machine's memory, or the limit set for it (ulimit -v, cgroup), is exhausted: start fewer or smaller workers";
constexpr char kSharedMemory[] =
    "/dev/shm is too small for the DataLoader: docker run --shm-size=8g or --ipc=host (Kubernetes: an emptyDir with "
    "medium Memory), or fewer DataLoader workers";
constexpr char kLostPeer[] =
    "it lost another rank, or never reached it: see the logs of that rank and its node; if both are well, check the "
    "network between them (NCCL_DEBUG=INFO; NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME choose the interface)";
constexpr char kTooSlow[] =
    "a rank did not take part in time: it is slow, stuck, or in another operation; what the others did is below, "
    "if there was time to look; --hang-timeout names the rank and its line";
constexpr char kEndedBefore[] =
    " had already exited with code 0, so this rank lost a connection or waited in vain: see why the other ended early; "
    "every rank must take part in the same operations (with uneven data: torch.distributed.algorithms.join)";
constexpr char kEmptyStdin[] =
    "its stdin is empty: only rank 0 reads a terminal, and no rank does while ddprun is in the background of a shell; "
    "--stdin RANK gives the terminal to another rank, for breakpoint() too";
constexpr char kNoCompiler[] = "a C++ compiler is needed at run time: install g++, or name one with CC and CXX";
constexpr char kNoDriver[] =
    "no usable NVIDIA driver: nvidia-smi must work here; a container needs docker run --gpus all; the driver must be "
    "new enough for this CUDA";
constexpr char kGpuFault[] =
    "a kernel on the GPU failed some time before this line, often because of an index out of range: "
    "CUDA_LAUNCH_BLOCKING=1 shows which one";
constexpr char kGpuMemory[] =
    "the memory of a GPU failed, not the program: nvidia-smi -q -d ECC,ROW_REMAPPER and Xid in dmesg show which GPU; "
    "reset it (nvidia-smi --gpu-reset), or start without that node (--exclude-after 1 replaces it by a spare)";
constexpr char kNcclVersions[] =
    "the ranks have different versions of NCCL: the line has them as numbers, 22809 for 2.28.9; on each node, python "
    "-c "
    "'import torch; print(torch.cuda.nccl.version())' shows PyTorch's, NCCL_DEBUG=VERSION any program's; "
    "LD_LIBRARY_PATH, LD_PRELOAD or DDP_NCCL_LIBRARY may choose another file on one of them";
constexpr char kWindowsLines[] = "the script has Windows line ends: sed -i 's/\\r$//' SCRIPT removes them";
constexpr char kPortTaken[] =
    "a port that it needs is taken: ss -ltnp shows by which process; with one node leave --master-port out, and a "
    "free port is used";

constexpr char kPassDash[] =
    "the script expects --local-rank, as from torch.distributed.launch of PyTorch 2: ddprun --legacy-local-rank passes "
    "it";
constexpr char kPassUnderscore[] =
    "the script expects --local_rank, as from torch.distributed.launch of PyTorch 1: ddprun "
    "--legacy-local-rank=underscore passes it";

// The first symptom that fits counts, so special ones come before general ones.
const Symptom kSymptoms[] = {
    {Where::InTheError, {"CUDA out of memory"}, kGpuFull},
    {Where::InTheError, {"OutOfMemoryError", "CUDA"}, kGpuFull},
    {Where::InTheError, {"CUDA error: out of memory"}, kGpuFull},
    {Where::InTheError,
     {"Cannot re-initialize CUDA in forked subprocess"},
     "CUDA cannot be used after a fork: pass multiprocessing_context=\"spawn\" to the DataLoader, or use CUDA only "
     "later"},
    // A script may know only one spelling; argparse's usage line shows which.
    {Where::Anywhere, {"arguments are required:", "--local_rank"}, kPassUnderscore},
    {Where::Anywhere, {"arguments are required:", "--local-rank"}, kPassDash},
    {Where::Anywhere, {"unrecognized arguments: --local-rank", "--local_rank"}, kPassUnderscore},
    {Where::Anywhere, {"unrecognized arguments: --local_rank", "--local-rank"}, kPassDash},
    {Where::Anywhere,
     {"unrecognized arguments: --local"},
     "the script has no option --local-rank or --local_rank: leave --legacy-local-rank out, and let the script read "
     "the "
     "variable LOCAL_RANK"},
    {Where::Anywhere, {"insufficient shared memory"}, kSharedMemory},
    {Where::Anywhere, {"DataLoader worker (pid", "killed by signal: Bus error"}, kSharedMemory},
    {Where::Anywhere, {"unable to write to file </torch_", "No space left"}, kSharedMemory},
    {Where::Anywhere, {"unable to allocate shared memory(shm) for file </torch_"}, kSharedMemory},
    {Where::Anywhere,
     {"DataLoader worker (pid", "killed by signal: Killed"},
     "something killed a DataLoader worker, most often the kernel for lack of memory (see dmesg): use fewer of them "
     "(num_workers), or more memory"},
    {Where::Anywhere,
     {"Duplicate GPU detected"},
     "two ranks use the same GPU: call torch.cuda.set_device(int(os.environ[\"LOCAL_RANK\"])) before the process group "
     "is made"},
    {Where::InTheError,
     {"CUDA error: invalid device ordinal"},
     "there are fewer GPUs than this rank expects: --nproc-per-node gpu starts one worker for each"},
    {Where::Anywhere, {"Found no NVIDIA driver on your system"}, kNoDriver},
    {Where::Anywhere, {"CUDA driver version is insufficient"}, kNoDriver},
    {Where::Anywhere, {"no CUDA-capable device is detected"}, kNoDriver},
    {Where::InTheError, {"uncorrectable ECC error encountered"}, kGpuMemory},
    {Where::InTheError, {"cudaErrorECCUncorrectable"}, kGpuMemory},
    {Where::InTheError, {"CUDA_ERROR_ECC_UNCORRECTABLE"}, kGpuMemory},
    {Where::Anywhere, {"Mismatched NCCL version detected"}, kNcclVersions},
    {Where::Anywhere, {"Mismatched NCCL git versions detected"}, kNcclVersions},
    {Where::InTheError, {"device-side assert triggered"}, kGpuFault},
    {Where::InTheError, {"an illegal memory access was encountered"}, kGpuFault},
    {Where::InTheError,
     {"Expected to have finished reduction in the prior iteration"},
     "some parameters got no gradient on this rank: use DistributedDataParallel(..., find_unused_parameters=True)"},
    {Where::InTheError,
     {"Default process group has not been initialized"},
     "call torch.distributed.init_process_group() first; ddprun has set the variables that it needs"},
    {Where::InTheError, {"collective operation timeout"}, kTooSlow},
    {Where::InTheError, {"Timed out waiting", "operation to complete"}, kTooSlow},
    {Where::InTheError, {"not done in", "another rank is stopped, slow, or calls something else"}, kTooSlow},
    {Where::InTheError, {"ncclRemoteError"}, kLostPeer},
    {Where::InTheError, {"ncclSystemError"}, kLostPeer},
    {Where::InTheError, {"gloo", "Connection closed by peer"}, kLostPeer},
    {Where::InTheError, {"gloo", "Connection reset by peer"}, kLostPeer},
    {Where::InTheError, {"gloo", "Connection refused"}, kLostPeer},
    {Where::AtTheEnd, {"torch.distributed.DistStoreError"}, kLostPeer},
    {Where::AtTheEnd, {"torch.distributed.DistNetworkError", "EADDRINUSE"}, kPortTaken},
    {Where::AtTheEnd, {"OSError: [Errno 98] Address already in use"}, kPortTaken},
    {Where::InTheError, {"EADDRINUSE"}, kPortTaken},
    {Where::InTheError,
     {"OSError: [Errno 24] Too many open files"},
     "its limit of open files is reached: raise it with ulimit -n 65536 before ddprun starts; with a DataLoader also "
     "torch.multiprocessing.set_sharing_strategy(\"file_system\")"},
    {Where::AtTheEnd,
     {"OSError: [Errno 28] No space left on device"},
     "a disk is full: df -h shows which one; --log-dir and TMPDIR choose other places for logs and temporary files"},
    {Where::AtTheEnd,
     {"PermissionError: [Errno 13]"},
     "the user who runs ddprun has no permission for the file in that line: ls -ld shows its owner"},
    {Where::AtTheEnd, {"MemoryError"}, kHostFull},
    {Where::InTheError, {"DefaultCPUAllocator: can't allocate memory"}, kHostFull},
    {Where::Anywhere, {"what():", "std::bad_alloc"}, kHostFull},
    {Where::Anywhere, {"uncaught exception std::bad_alloc"}, kHostFull},
    {Where::AtTheEnd, {"OSError: [Errno 12] Cannot allocate memory"}, kHostFull},
    {Where::Anywhere,
     {"Ninja is required to load C++ extensions"},
     "install ninja for the Python that runs the workers: pip install ninja"},
    {Where::Anywhere, {"No working C++ compiler found"}, kNoCompiler},
    {Where::Anywhere, {"Failed to find C compiler"}, kNoCompiler},
    {Where::AtTheEnd,
     {"the timer", " expired (torch.distributed.elastic.timer)"},
     "what it did in this scope took longer than the program allows: it is slow or stuck there, or waits for another "
     "rank; --hang-timeout names the rank and its line, and a larger expires(after=...) gives it more time"},
    {Where::AtTheEnd,
     {"cannot execute ", "Exec format error"},
     "it was built for another kind of machine (file PROGRAM, uname -m), or is a script without a #! line"},
    {Where::AtTheEnd,
     {"cannot execute ", "No such file or directory"},
     "its interpreter is missing: the one in its #! line, or the loader that readelf -l shows"},
    {Where::Anywhere, {"\\r': No such file or directory"}, kWindowsLines},
    {Where::Anywhere, {"\\r\u2019: No such file or directory"}, kWindowsLines},
    {Where::Anywhere, {"$'\\r': command not found"}, kWindowsLines},
    {Where::Anywhere,
     {"error while loading shared libraries:"},
     "the loader does not find the library that it names: install it, or add its folder to LD_LIBRARY_PATH"},
    {Where::Anywhere,
     {"version `GLIBC", "not found (required by"},
     "it was built on a newer system than this one: run it in the container it was built in, or build it here"},
};

// Returns the line without the "[rank0]: " that PyTorch puts before the lines of an uncaught exception.
std::string_view without_rank(std::string_view line) {
  constexpr std::string_view kRank = "[rank";
  if (!line.starts_with(kRank)) return line;
  const auto digits = line.find_first_not_of("0123456789", kRank.size());
  if (digits == std::string_view::npos || !line.substr(digits).starts_with("]: ")) return line;
  return line.substr(digits + 3);
}

// Returns the index of the first line that belongs to the error that ended a worker: of the last traceback, with those
// that Python chains to it; without one of the last few lines, or of all if the worker was killed by a signal, since
// long C++ backtraces follow the error then.
std::size_t begin_of_error(bool is_by_signal, const std::vector<std::string>& tail) {
  std::size_t begin = tail.size();
  bool seeks_traceback = true;
  for (std::size_t i = tail.size(); i-- > 0;) {
    const std::string_view line = without_rank(tail[i]);
    if (seeks_traceback && line.starts_with("Traceback (most recent call last):")) {
      begin = i;
      seeks_traceback = false;
    } else if (!seeks_traceback) {
      seeks_traceback = line.starts_with("During handling of the above exception, another exception occurred:") ||
                        line.starts_with("The above exception was the direct cause of the following exception:");
      if (!seeks_traceback) return begin;
    }
  }
  if (begin < tail.size()) return seeks_traceback ? 0 : begin;
  return is_by_signal || tail.size() <= kEndLines ? 0 : tail.size() - kEndLines;
}

// What the worker wrote: the lines of its error, and the last ones of its stderr.
struct Words {
  std::vector<std::string> message, tail;
  std::size_t error_begin;  // index in `tail` of the first line of the error that ended the worker

  explicit Words(const WorkerFailure& failure) {
    std::istringstream stream(failure.message);
    for (std::string line; std::getline(stream, line);) message.push_back(line);
    tail = failure.stderr_tail;
    error_begin = begin_of_error(failure.status.shell_code() > 128, tail);
  }

  // Returns the first line for which `fits` holds, among all lines or the last few of each; null if there is none.
  template <typename Fits>
  const std::string* find(Where where, Fits fits) const {
    for (const auto* lines : {&message, &tail}) {
      const std::size_t first = lines == &tail && where == Where::InTheError ? error_begin : 0;
      const bool near_end = where == Where::AtTheEnd && lines->size() > kEndLines;
      const auto from = near_end ? lines->end() - kEndLines : lines->begin() + static_cast<std::ptrdiff_t>(first);
      const auto found = std::find_if(from, lines->end(), fits);
      if (found != lines->end()) return &*found;
    }
    return nullptr;
  }
};

bool fits(const Symptom& symptom, const Words& words) {
  const std::string_view first = symptom.words.front();
  if (symptom.where == Where::AtTheEnd) {
    return words.find(Where::AtTheEnd, [&](const std::string& line) {
      return without_rank(line).starts_with(first) &&
             std::all_of(symptom.words.begin(), symptom.words.end(),
                         [&](const char* word) { return line.find(word) != std::string::npos; });
    }) != nullptr;
  }
  return std::all_of(symptom.words.begin(), symptom.words.end(), [&](const char* word) {
    return words.find(symptom.where, [&](const std::string& line) { return line.find(word) != std::string::npos; }) !=
           nullptr;
  });
}

// Returns the module of "ModuleNotFoundError: No module named 'x.y'", or of "/venv/bin/python: No module named x",
// which `python -m x` says; empty if there is no such line. It is in quotation marks.
std::string name_of_missing_module(const Words& words, const std::string& python) {
  constexpr std::string_view kError = "ModuleNotFoundError: No module named ";
  const std::string of_program = python + ": No module named ";
  const std::string* line = words.find(Where::AtTheEnd, [&](const std::string& text) {
    return without_rank(text).starts_with(kError) || (!python.empty() && text.starts_with(of_program));
  });
  if (!line) return "";
  if (!line->starts_with(of_program)) return std::string(without_rank(*line).substr(kError.size()));
  const std::string module = line->substr(of_program.size());
  return module.find(';') == module.npos ? "'" + module + "'" : "";  // x.__main__; 'x' is a package and cannot be ...
}

// Returns a hint for a module that is missing; empty if none is.
std::string missing_module(const Words& words, const std::string& python) {
  const std::string module = name_of_missing_module(words, python);
  if (module.empty()) return "";
  if (python.empty()) return "install " + module + " for the Python that runs this worker";
  return module + " is not there for " + python +
         ": install it for that Python, choose another one (PYTHON_EXEC=/path/to/python, or an active virtual "
         "environment), or add its folder to PYTHONPATH if it is yours";
}

// Returns whether it failed where Python, or Python's debugger, found that stdin has nothing more.
bool read_stdin(const Words& words) {
  return words.find(Where::AtTheEnd, [](const std::string& line) {
    const std::string_view text = without_rank(line);
    return text.starts_with("bdb.BdbQuit") || text.starts_with("EOFError: EOF when reading a line");
  }) != nullptr;
}

// Returns whether a parser such as argparse refused the arguments: "usage: ..." and "prog: error: ...", with code 2.
bool is_usage_error(const WorkerFailure& failure, const Words& words) {
  return failure.status.code == 2 &&
         words.find(Where::Anywhere, [](const std::string& line) { return line.starts_with("usage: "); }) &&
         words.find(Where::AtTheEnd, [](const std::string& line) { return line.find(": error: ") != line.npos; });
}

// Returns whether libddp's backtrace begins without a function name, as where a program's functions are not exported.
bool begins_without_name(const std::vector<std::string>& message) {
  const auto heading = std::find(message.begin(), message.end(), "backtrace:");
  return message.end() - heading > 1 && heading[1].find("(+0x") != std::string::npos;
}

// Returns a hint for a signal that no message explains; a shell between ddprun and the program makes it 128 + signal.
std::string hint_for_signal(const WorkerFailure& failure) {
  switch (failure.status.shell_code() - 128) {
    case SIGKILL:
      return "if nobody killed it by hand, it was most often the kernel for lack of memory: see dmesg or the "
             "container's "
             "events";
    case SIGBUS:
      return "df -h /dev/shm: if it is full, docker run --shm-size=8g or --ipc=host, or fewer DataLoader workers";
    case SIGILL:
      return "was it built for another CPU? Compare the flags in /proc/cpuinfo with those it was built for (-march, "
             "AVX-512)";
    case SIGSEGV:
      if (!failure.message.empty()) return "";  // it says where
      return "PYTHONFAULTHANDLER=1 shows where it was in Python; ulimit -c unlimited and gdb (or coredumpctl) show "
             "where it "
             "was in other code";
    default:
      return "";
  }
}

}  // namespace

std::string hint_for(const WorkerFailure& failure, const Circumstances& circumstances) {
  const auto& [python, log_error, gpu_fault, has_stdin, ended_before] = circumstances;
  if (failure.status.success()) return "";
  if (!failure.out_of_memory.empty()) {
    return "fewer or smaller workers (batch, DataLoader workers, data held in memory), or more memory for the job";
  }
  if (!gpu_fault.empty()) return std::string(kGpuMemory) + " (" + gpu_fault + ")";
  if (!log_error.empty()) {
    return "the disk with its logs takes no more (" + log_error +
           "): it may have failed because of that, and its last lines are missing; df -h shows the disk, --log-dir "
           "chooses another place";
  }
  // Messages that the table knows, then those that need the text around them, then the signal alone.
  const Words words(failure);
  if (!has_stdin && read_stdin(words)) return kEmptyStdin;
  for (const Symptom& symptom : kSymptoms) {
    if (!fits(symptom, words)) continue;
    const bool is_others_doing = symptom.hint == kLostPeer || symptom.hint == kTooSlow;
    return is_others_doing && !ended_before.empty() ? describe_ranks(ended_before) + kEndedBefore : symptom.hint;
  }
  const std::string module = missing_module(words, python);
  if (!module.empty()) return module;
  if (is_usage_error(failure, words)) {
    return "the program did not accept its arguments; ddprun's own options go before the program, the program's after "
           "it";
  }
  if (begins_without_name(words.message)) {
    return "addr2line -Cfe FILE 0xOFFSET turns FILE(+0xOFFSET) of the backtrace into function and line";
  }
  return hint_for_signal(failure);
}

bool is_timeout(const std::string& message) {
  for (const char* words : {"imed out", "imeoutError", "operation timeout"}) {
    if (message.find(words) != std::string::npos) return true;
  }
  return false;
}

}  // namespace ddp::launcher
