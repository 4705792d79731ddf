// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/diagnosis/failure_handlers.hpp"

#include <cxxabi.h>
#include <execinfo.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <mutex>
#include <string>
#include <string_view>
#include <typeinfo>

#include "rendezvous/base/check.hpp"
#include "rendezvous/base/new_file.hpp"
#include "rendezvous/base/signal_abbreviation.hpp"
#include "rendezvous/error_file_schema.hpp"
#include "rendezvous/worker_contract.hpp"
#include "runtime/base/error_file.hpp"
#include "runtime/base/signal_safe_text.hpp"
#include "runtime/diagnosis/flight_recorder.hpp"

namespace ddp::runtime {

namespace {

namespace contract = rendezvous::contract;
namespace error_file = rendezvous::error_file;

constexpr int kFatalSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGTRAP};
constexpr int kMaxFrames = 64;
constexpr std::size_t kTraceBytes = 16 << 10;
constexpr std::size_t kAlternateStackBytes = 64 << 10;
constexpr int kWaitForOther = 500;  // how many times 10 ms to wait for another thread's record
// The exception that Gloo throws on a thread of its own when it receives more than it expects.
constexpr char kGlooAssertion[] = "gloo::EnforceNotMet";
constexpr char kGlooAssertionHint[] =
    " (most often ranks that disagree about an operation or its size: DDP_DEBUG=detail names them)";

// What the handlers of this process need, filled by the first call of install_failure_handlers(). It is global, since a
// signal handler has no other access to it.
struct Prepared {
  pid_t pid = 0;
  char path[PATH_MAX] = {};
  char temporary[PATH_MAX + 32] = {};
  std::terminate_handler earlier_terminate = nullptr;
};
Prepared prepared;
std::atomic<pid_t> recording_thread = 0;
volatile std::sig_atomic_t recorded_signal = 0;

pid_t this_thread() { return static_cast<pid_t>(syscall(SYS_gettid)); }

// ---- What signal handlers call: no allocation and no locks, only system calls and memory that exists already ----

void put_in_place(std::string_view record) {
  rendezvous::Descriptor file = rendezvous::create_file(prepared.temporary, error_file::kMode);
  if (!file) return;
  write_all(file.get(), record);
  file.close();
  rename(prepared.temporary, prepared.path);
}

// Adds one line "module(function+0x1f)[0x55...]" per frame, beginning at the frame `first`, or all if it is not found.
void add_backtrace(FixedText& out, const void* first) {
  void* frames[kMaxFrames];
  const int count = backtrace(frames, kMaxFrames);
  void** const end = frames + count;
  void** begin = std::find(frames, end, first);
  if (begin == end) begin = frames;
  const int fd = static_cast<int>(syscall(SYS_memfd_create, "backtrace", 1U /* MFD_CLOEXEC */));
  if (fd < 0) return;
  backtrace_symbols_fd(begin, static_cast<int>(end - begin), fd);
  static char lines[kTraceBytes];
  const ssize_t size = pread(fd, lines, sizeof lines, 0);
  close(fd);
  out.add("\nbacktrace:\n").add({lines, static_cast<std::size_t>(std::max<ssize_t>(size, 0))});
}

void put_record(std::string_view message, std::string_view trace) {
  static char memory[2 * kTraceBytes + 1024];
  constexpr std::size_t kReserved = 64;  // for the end, which fits however long the trace is
  FixedText record(memory, sizeof memory - kReserved);
  record.add(error_file::kBeforeText).add_escaped(message);
  record.add(error_file::kBeforeTrace).add_escaped(trace);
  record.grow(kReserved);
  record.add(error_file::kBeforeTimestamp).add_number(static_cast<std::uint64_t>(time(nullptr))).add(error_file::kEnd);
  put_in_place(record.text());
}

bool is_ours_to_record() { return getpid() == prepared.pid && access(prepared.path, F_OK) != 0; }

// Registers of the interrupted code.
struct Registers {
  std::uintptr_t program_counter = 0;
  std::uintptr_t stack_pointer = 0;
};

Registers registers_in(const void* context) {
  const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return {static_cast<std::uintptr_t>(machine.gregs[REG_RIP]), static_cast<std::uintptr_t>(machine.gregs[REG_RSP])};
#elif defined(__aarch64__)
  return {machine.pc, machine.sp};
#else
  static_cast<void>(machine);
  return {};  // no frame has this address, so all frames are shown
#endif
}

// Returns whether the address is close to the stack pointer, as a push or the first use of a new frame is.
bool is_stack_overflow(std::uintptr_t address, std::uintptr_t stack_pointer) {
  constexpr std::uintptr_t kFrame = 64 << 10,
                           kLowest = 1 << 20;  // below kLowest the pointer is invalid, not the stack deep
  return address >= kLowest && address + kFrame > stack_pointer && address < stack_pointer + kFrame;
}

void record_signal(int number, const siginfo_t* info, const void* context) {
  static char memory[kTraceBytes + 512];
  FixedText text(memory, sizeof memory);
  const char* name = rendezvous::signal_abbreviation(number);
  text.add("SIG").add(name ? name : "?");
  // What happened: the signal, the address or the sender, and the thread.
  const bool by_kernel = info->si_code > 0;
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  const Registers registers = registers_in(context);
  if (by_kernel && (number == SIGSEGV || number == SIGBUS || number == SIGILL || number == SIGFPE)) {
    text.add(" at address 0x").add_number(address, 16);
    if (number == SIGSEGV && is_stack_overflow(address, registers.stack_pointer)) text.add(" (stack overflow)");
  } else if (info->si_code == SI_USER && info->si_pid != prepared.pid) {
    text.add(" from process ").add_number(static_cast<std::uint64_t>(info->si_pid));
  }
  const pid_t thread = this_thread();
  if (thread != prepared.pid) text.add(", in thread ").add_number(static_cast<std::uint64_t>(thread));
  // Record that first, then the backtrace as well.
  const std::string_view message = text.text();
  put_record(message, message);  // in case the stack is too broken to be walked
  write_flight_recorder(message);
  add_backtrace(text, reinterpret_cast<const void*>(registers.program_counter));
  put_record(message, text.text());
}

// Dies of the signal as if it had not been handled. The signal is sent again, since after a mere return one that came
// from kill(), or a trap, would not come again.
void die_of(int number, siginfo_t* info) {
  signal(number, SIG_DFL);
  if (syscall(SYS_rt_tgsigqueueinfo, getpid(), this_thread(), number, info) != 0) {
    syscall(SYS_tgkill, getpid(), this_thread(), number);
  }
}

void die_now_of(int number) {
  signal(number, SIG_DFL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  syscall(SYS_tgkill, getpid(), this_thread(), number);
}

void on_fatal_signal(int number, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const pid_t thread = this_thread();
  pid_t nobody = 0;
  if (recording_thread.compare_exchange_strong(nobody, thread)) {
    recorded_signal = number;
    if (is_ours_to_record()) record_signal(number, info, context);
    recording_thread = -1;
  } else if (nobody == thread) {
    die_now_of(recorded_signal);  // the handler itself crashed, most likely on a stack that cannot be walked
  } else {
    // Two threads crash at once: wait until the first one's record is finished. Then either may end the process.
    for (int i = 0; i < kWaitForOther && recording_thread != -1; ++i) {
      const timespec pause = {0, 10'000'000};
      nanosleep(&pause, nullptr);
    }
  }
  die_of(number, info);
  errno = saved_errno;
}

// ---- Ordinary code ----

std::string demangled(const char* name) {
  int status = 0;
  char* const plain = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string text = status == 0 && plain ? plain : name;
  std::free(plain);
  return text;
}

std::string words_of_exception() {
  const std::type_info* const type = abi::__cxa_current_exception_type();
  if (!type) return "std::terminate was called, with no exception";
  const std::string name = demangled(type->name());
  std::string text = "uncaught exception " + name;
  try {
    std::rethrow_exception(std::current_exception());
  } catch (const std::exception& e) {
    text += std::string(": ") + e.what();
  } catch (const char* words) {
    text += std::string(": ") + words;
  } catch (const std::string& words) {
    text += ": " + words;
  } catch (...) {
    // The type of the exception is all there is to say.
  }
  if (name == kGlooAssertion) text += kGlooAssertionHint;
  return text;
}

// Records the message and a backtrace that begins at the frame `first`. The process aborts afterwards; the handler of
// SIGABRT then finds the file in place and adds nothing.
void record_with_backtrace(const std::string& message, const void* first) noexcept {
  if (!is_ours_to_record()) return;
  write_flight_recorder(message);
  try {
    std::string memory(kTraceBytes, '\0');
    FixedText trace(memory.data(), memory.size());
    add_backtrace(trace, first);
    record_error(message, message + std::string(trace.text()));
  } catch (...) {
    // SIGABRT's handler, which needs no memory, writes the record instead.
  }
}

[[noreturn]] void on_terminate() {
  try {
    record_with_backtrace(words_of_exception(), __builtin_return_address(0));
  } catch (...) {
    // SIGABRT's handler writes the record instead.
  }
  if (prepared.earlier_terminate) prepared.earlier_terminate();
  std::abort();
}

void on_failed_check(const char* text) noexcept {
  try {
    record_with_backtrace(text, __builtin_return_address(0));
  } catch (...) {
    // SIGABRT's handler writes the record instead.
  }
}

// A stack for the handlers of this thread, since a stack overflow leaves no room on its own.
struct AlternateStack {
  void* memory = MAP_FAILED;
  std::size_t size = 0;

  AlternateStack() {
    stack_t current = {};
    if (sigaltstack(nullptr, &current) != 0 || (current.ss_flags & SS_DISABLE) == 0)
      return;  // the thread has one already
    size = kAlternateStackBytes + static_cast<std::size_t>(std::max<long>(0, sysconf(_SC_SIGSTKSZ)));
    memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED) return;
    const stack_t ours = {.ss_sp = memory, .ss_flags = 0, .ss_size = size};
    sigaltstack(&ours, nullptr);
  }
  ~AlternateStack() {
    if (memory == MAP_FAILED) return;
    stack_t current = {};
    if (sigaltstack(nullptr, &current) != 0 || current.ss_sp != memory) return;  // the program has replaced it
    const stack_t none = {.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
    sigaltstack(&none, nullptr);
    munmap(memory, size);
  }
  AlternateStack(const AlternateStack&) = delete;
  AlternateStack& operator=(const AlternateStack&) = delete;
};

void handle_signals() {
  for (const int number : kFatalSignals) {
    struct sigaction there = {};
    if (sigaction(number, nullptr, &there) != 0 || there.sa_handler != SIG_DFL) continue;
    struct sigaction ours = {};
    ours.sa_sigaction = on_fatal_signal;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    sigaction(number, &ours, nullptr);
  }
}

bool prepare() {
  // Prepare everything that the handlers cannot do themselves, then install them.
  const char* wanted = std::getenv(contract::kFailureHandlers);
  const char* path = std::getenv(contract::kErrorFile);
  if ((wanted && std::string_view(wanted) == "0") || !path || *path == '\0') return false;
  prepared.pid = getpid();
  if (strlen(path) >= sizeof prepared.path) return false;
  strcpy(prepared.path, path);
  snprintf(prepared.temporary, sizeof prepared.temporary, "%s", rendezvous::temporary_name(path).c_str());
  void* frame = nullptr;
  backtrace(&frame, 1);  // makes backtrace() load its library now, since a signal handler could not
  prepared.earlier_terminate = std::set_terminate(on_terminate);
  rendezvous::check_failed_hook = on_failed_check;
  handle_signals();
  return true;
}

}  // namespace

bool install_failure_handlers() noexcept {
  static std::once_flag once;
  static bool installed = false;
  try {
    std::call_once(once, [] { installed = prepare(); });
  } catch (...) {
    return false;
  }
  if (installed) thread_local const AlternateStack stack;
  return installed;
}

}  // namespace ddp::runtime
