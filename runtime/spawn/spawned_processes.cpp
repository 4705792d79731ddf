// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/spawn/spawned_processes.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "collectives/gpu/cuda_api.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/base/text_stream.hpp"
#include "rendezvous/base/thread.hpp"
#include "rendezvous/worker_contract.hpp"
#include "runtime/base/environment.hpp"
#include "runtime/base/signal_safe_text.hpp"

namespace ddp::runtime {
namespace {

namespace contract = rendezvous::contract;
using rendezvous::Error;
using rendezvous::ErrorCode;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr char kHost[] = "127.0.0.1";
// How long a thread may stay in /proc after it was joined.
constexpr milliseconds kThreadLeaves{100};
// Polling interval for processes without a pidfd.
constexpr milliseconds kPollInterval{20};
#ifdef __SANITIZE_THREAD__
constexpr std::size_t kThreads = 2;  // one is ThreadSanitizer's, which survives fork()
#else
constexpr std::size_t kThreads = 1;
#endif

// How a child's report goes through the pipe. It is written at once, so that reports of several children do not mix.
struct ReportHeader {
  std::int32_t rank;
  std::int32_t status;
  std::uint32_t size;
};
constexpr std::size_t kLongestText = PIPE_BUF - sizeof(ReportHeader);

rendezvous::Pipe make_pipe_or_throw() {
  auto pipe = rendezvous::try_pipe();
  if (!pipe) rendezvous::system_error("spawn: a pipe");
  return std::move(*pipe);
}

// Returns the names of this process's threads, or an empty list without /proc.
std::vector<std::string> names_of_threads() {
  std::vector<std::string> names;
  DIR* const folder = opendir("/proc/self/task");
  if (folder == nullptr) return names;
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] == '.') continue;
    std::string name = "?";
    std::getline(rendezvous::FileStream(std::string("/proc/self/task/") + entry->d_name + "/comm"), name);
    names.push_back(name);
  }
  closedir(folder);
  return names;
}

// Throws if the process has other threads: fork() copies only the calling thread, and locks that others hold stay
// locked.
void check_can_be_copied() {
  const auto until = Clock::now() + kThreadLeaves;
  std::vector<std::string> names = names_of_threads();
  while (names.size() > kThreads && Clock::now() < until) {
    std::this_thread::sleep_for(milliseconds(1));
    names = names_of_threads();
  }
  if (names.size() > kThreads) {
    throw Error(ErrorCode::InvalidArgument, "spawn: this process has " + std::to_string(names.size()) + " threads (" +
                                                rendezvous::list_of(names) +
                                                "), but a fork of it would have only one: spawn before anything "
                                                "starts a thread, or let ddprun start the processes");
  }
  if (collectives::cuda_is_initialised()) {
    throw Error(ErrorCode::InvalidArgument,
                "spawn: this process has used CUDA, which does not work in a fork of it: spawn before the first call "
                "of CUDA, or let ddprun start the processes");
  }
}

void set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

// Returns whether the program has said where its ranks meet, perhaps with those of other nodes. What a launcher says is
// for the worker that spawns, not for what it spawns.
bool has_master_of_its_own() {
  return process_environment(contract::kMasterAddr) && process_environment(contract::kMasterPort) &&
         launchers_store(process_environment) != LaunchersStore::Here;
}

void set_environment(int rank, int size, std::uint16_t port) {
  const std::string number = std::to_string(rank);
  const std::string count = std::to_string(size);
  for (const char* name : {contract::kRank, contract::kLocalRank, contract::kRoleRank}) set(name, number);
  for (const char* name : {contract::kWorldSize, contract::kLocalWorldSize, contract::kRoleWorldSize}) set(name, count);
  set(contract::kGroupRank, "0");
  set(contract::kGroupWorldSize, "1");
  set(contract::kRestartCount, "0");
  if (has_master_of_its_own()) {
    unsetenv(contract::kUseAgentStore);
    return;
  }
  set(contract::kMasterAddr, kHost);
  set(contract::kMasterPort, std::to_string(port));
  set(contract::kStorePort, std::to_string(port));
  set(contract::kUseAgentStore, "True");
}

// Replaces stdin by /dev/null, since several processes cannot share a terminal's input.
void read_from_nowhere() {
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing < 0) return;
  dup2(nothing, STDIN_FILENO);
  if (nothing != STDIN_FILENO) close(nothing);
}

template <typename Value>
std::string_view bytes_of(const Value* values, std::size_t count = 1) {
  return {reinterpret_cast<const char*>(values), count * sizeof(Value)};
}

ssize_t read_some(int from, void* data, std::size_t size) {
  ssize_t count = 0;
  do {
    count = read(from, data, size);
  } while (count < 0 && errno == EINTR);
  return count;
}

void report(int to, int rank, const SpawnReport& what) {
  std::array<char, PIPE_BUF> message = {};
  const std::size_t size = std::min(what.text.size(), kLongestText);
  const ReportHeader header = {rank, what.status, static_cast<std::uint32_t>(size)};
  std::memcpy(message.data(), &header, sizeof header);
  std::memcpy(message.data() + sizeof header, what.text.data(), size);
  write_all(to, {message.data(), sizeof header + size});
}

}  // namespace

SpawnedProcesses::SpawnedProcesses(int size, const Options& options, const Work& work)
    : options_(options), reported_(static_cast<std::size_t>(size)), core_(size, options.grace) {
  check_can_be_copied();
  reports_ = make_pipe_or_throw();
  stop_ = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (stop_.get() < 0) rendezvous::system_error("spawn: an eventfd");
  Pipe gate = make_pipe_or_throw();
  try {
    fork_all(size, work, gate);
    rendezvous::StoreServer::Options hosting;
    hosting.log = [](const std::string& line) { std::fputs(("libddp: " + line + "\n").c_str(), stderr); };
    store_ = std::make_unique<rendezvous::StoreServer>(std::vector<std::string>{kHost}, 0, std::move(hosting));
    open_pidfds();
    watch_ = rendezvous::start_thread("ddp-spawn", [this] { watch(); });
    const std::vector<std::uint16_t> ports(static_cast<std::size_t>(size), store_->port());
    write_all(gate.write_end.get(), bytes_of(ports.data(), ports.size()));
  } catch (...) {
    kill_all();
    throw;
  }
}

void SpawnedProcesses::fork_all(int size, const Work& work, Pipe& gate) {
  const pid_t parent = getpid();
  pids_.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) be_rank(rank, size, parent, work, gate);
    if (pid < 0)
      rendezvous::system_error("spawn: the process of rank " + std::to_string(rank) + " of " + std::to_string(size));
    pids_.push_back(pid);
  }
  reports_.write_end.close();
  fcntl(reports_.read_end.get(), F_SETFL, O_NONBLOCK);
}

// Opens a pidfd for every process, or for none: where descriptors are scarce, the store needs them more.
void SpawnedProcesses::open_pidfds() {
  for (const pid_t pid : pids_) {
    pidfds_.emplace_back(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    if (pidfds_.back().get() >= 0) continue;
    pidfds_.clear();
    return;
  }
}

// Runs in the child.
void SpawnedProcesses::be_rank(int rank, int size, pid_t parent, const Work& work, Pipe& gate) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // the parent was gone before prctl()
  gate.write_end.close();
  reports_.read_end.close();
  std::uint16_t port = 0;
  if (read_some(gate.read_end.get(), &port, sizeof port) != sizeof port) _exit(1);  // a process could not be forked
  gate.read_end.close();
  set_environment(rank, size, port);
  read_from_nowhere();
  const SpawnReport said = work(rank);
  std::fflush(nullptr);
  report(reports_.write_end.get(), rank, said);
  // _exit(), not exit(), which would run the parent's exit handlers.
  _exit(said.status == DDP_OK ? 0 : 1);
}

// Kills the processes, which still wait at the gate.
void SpawnedProcesses::kill_all() {
  for (const pid_t pid : pids_) kill(pid, SIGKILL);
  for (const pid_t pid : pids_) {
    while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

SpawnedProcesses::~SpawnedProcesses() {
  if (options_.daemon) {
    const std::uint64_t one = 1;
    write_all(stop_.get(), bytes_of(&one));
  }
  join(Time::max());
  if (core_.failure() && !failure_taken_) {
    const std::string line =
        "libddp: spawn: " + core_.failure()->text + " (join() was not called; it would have thrown this)\n";
    std::fputs(line.c_str(), stderr);
  }
}

bool SpawnedProcesses::join(Time until) {
  {
    std::unique_lock lock(mutex_);
    if (until == Time::max()) {
      over_.wait(lock, [&] { return core_.over(); });
    } else if (!over_.wait_until(lock, until, [&] { return core_.over(); })) {
      return false;
    }
  }
  if (watch_.joinable()) watch_.join();
  store_.reset();
  return true;
}

const std::optional<SpawnFailure>& SpawnedProcesses::failure() {
  failure_taken_ = true;
  return core_.failure();
}

// ---- On the watch's thread ----

void SpawnedProcesses::watch() {
  std::unique_lock lock(mutex_);
  while (!core_.over()) {
    // Without the lock: wait until a process ends, reports or is to be stopped, and collect what happened.
    const Time until = core_.wake_at();
    lock.unlock();
    wait_for_events(until);
    read_reports();
    std::vector<SpawnCore::Ending> ended;
    reap(ended);
    std::uint64_t stops = 0;
    const bool stop = read_some(stop_.get(), &stops, sizeof stops) > 0;
    // With the lock: let the core decide.
    lock.lock();
    const Time now = Clock::now();
    for (const SpawnCore::Ending& ending : ended) carry_out(core_.ended(ending, now));
    if (stop) carry_out(core_.stop(now));
    carry_out(core_.wake(now));
  }
  over_.notify_all();
}

void SpawnedProcesses::wait_for_events(Time until) const {
  std::vector<pollfd> polled = {{stop_.get(), POLLIN, 0}, {reports_.read_end.get(), POLLIN, 0}};
  for (const Descriptor& process : pidfds_)
    polled.push_back({process.get(), POLLIN, 0});  // -1 for a process that has ended
  int timeout_ms = pidfds_.empty() ? static_cast<int>(kPollInterval.count()) : -1;
  if (until != Time::max()) {
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now()).count();
    const int wait_ms = static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
    timeout_ms = timeout_ms < 0 ? wait_ms : std::min(timeout_ms, wait_ms);
  }
  poll(polled.data(), polled.size(), timeout_ms);
}

void SpawnedProcesses::read_reports() {
  ReportHeader header = {};
  ssize_t count = 0;
  while ((count = read_some(reports_.read_end.get(), &header, sizeof header)) == sizeof header) {
    SpawnReport said = {static_cast<ddp_status>(header.status), std::string(header.size, '\0')};
    read_some(reports_.read_end.get(), said.text.data(), header.size);  // it was written in one piece
    reported_.at(static_cast<std::size_t>(header.rank)) = std::move(said);
  }
  if (count == 0) reports_.read_end.close();  // no process can write any more
}

void SpawnedProcesses::reap(std::vector<SpawnCore::Ending>& ended) {
  for (std::size_t rank = 0; rank < pids_.size(); ++rank) {
    if (!core_.is_left(static_cast<int>(rank))) continue;  // only this thread changes that
    int status = 0;
    const pid_t pid = waitpid(pids_[rank], &status, WNOHANG);
    if (pid == 0 || (pid < 0 && errno == EINTR)) continue;
    SpawnCore::Ending ending;
    ending.rank = static_cast<int>(rank);
    if (pid > 0 && WIFEXITED(status)) ending.exit_code = WEXITSTATUS(status);
    if (pid > 0 && WIFSIGNALED(status)) ending.signal = WTERMSIG(status);
    if (!reported_[rank]) read_reports();  // what it wrote since the last read
    ending.report = reported_[rank];
    if (!pidfds_.empty()) pidfds_[rank].close();
    ended.push_back(std::move(ending));
  }
}

void SpawnedProcesses::carry_out(const SpawnCore::Actions& actions) {
  if (actions.announce) {  // as ddprun does, so that their groups fail at once and name this rank
    store_->set(std::string("/") + contract::kFailedRanksKey, std::to_string(actions.announce->rank));
    store_->set(std::string("/") + contract::kFailureKey, actions.announce->text);
  }
  if (actions.signal == 0) return;
  for (std::size_t rank = 0; rank < pids_.size(); ++rank) {
    if (core_.is_left(static_cast<int>(rank))) kill(pids_[rank], actions.signal);
  }
}

}  // namespace ddp::runtime
