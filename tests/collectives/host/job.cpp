// SPDX-License-Identifier: BSD-3-Clause
#include "tests/collectives/host/job.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "collectives/backend_error.hpp"
#include "collectives/host/backend.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/store/prefix_store.hpp"
#include "rendezvous/store/server.hpp"
#include "rendezvous/store/tcp_store.hpp"

namespace ddp::collectives::test {
namespace {

using rendezvous::Store;

int set(void* context, const char* key, const void* value, std::size_t size, ddp_backend_error* error) {
  try {
    static_cast<Store*>(context)->set(key, std::string_view(static_cast<const char*>(value), size));
    return 0;
  } catch (const std::exception& e) {
    set_text(error, e.what());
    return 1;
  }
}

int get(void* context, const char* key, std::int64_t timeout_ms, void* sink,
        void (*deliver)(void* sink, const void* value, std::size_t size), ddp_backend_error* error) {
  try {
    const std::string value = static_cast<Store*>(context)->get(key, std::chrono::milliseconds(timeout_ms));
    deliver(sink, value.data(), value.size());
    return 0;
  } catch (const rendezvous::Error& e) {
    set_text(error, (e.code() == rendezvous::ErrorCode::Timeout ? "timed out: " : "") + std::string(e.what()));
    return 1;
  }
}

}  // namespace

ddp_backend_group* join_group(std::uint16_t port, const std::string& name, int rank, int size, std::int64_t timeout_ms,
                              const std::function<void()>& once_connected, const std::optional<OwnPlace>& place) {
  rendezvous::TcpStore store("127.0.0.1", port, std::chrono::seconds(60));
  rendezvous::PrefixStore own(name, store);
  if (once_connected) once_connected();
  ddp_backend_group_config config = {};
  config.rank = rank;
  config.size = size;
  config.local_address = "127.0.0.1";
  config.init_timeout_ms = timeout_ms;
  config.store = {static_cast<Store*>(&own), &set, &get};
  ddp_backend_group* group = nullptr;
  BackendError error;
  ddp_backend_status status = DDP_BACKEND_OK;
  if (place) {
    group = make_host_group(config, *place);
  } else {
    status = host_backend().group_create(&config, &group, &error);
  }
  if (status == DDP_BACKEND_OK) status = host_backend().barrier(group, 0, timeout_ms, &error);
  if (status != DDP_BACKEND_OK) throw std::runtime_error(error.text);
  return group;
}

OwnPlace place_on_node(int node) {
  OwnPlace place = own_place();
  place.boot = "node" + std::to_string(node);  // as of another machine
  return place;
}

OwnPlace place_on_numa_node(int node) {
  OwnPlace place = own_place();
  place.numa_node = node;
  return place;
}

pid_t fork_rank(const std::function<int()>& body) {
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("no fork");
  if (child > 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(98);
  int code = 99;
  try {
    code = body();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
  }
  _exit(code);
}

int reap(pid_t process) {
  int status = 0;
  while (waitpid(process, &status, 0) < 0) {
    if (errno != EINTR) return -1000;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1 - WTERMSIG(status);
}

void wait_until_asleep(pid_t process) {
  for (std::string state; state != "S";) {
    std::string id, name;
    std::ifstream("/proc/" + std::to_string(process) + "/stat") >> id >> name >> state;
  }
}

StoreProcess::StoreProcess() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  process_ = fork_rank([&] {
    const rendezvous::StoreServer server({"127.0.0.1"}, 0);
    const std::uint16_t port = server.port();
    if (write(ends[1], &port, sizeof port) != sizeof port) return 1;
    for (;;) pause();
  });
  close(ends[1]);
  port_ = read_from<std::uint16_t>(ends[0]);
  close(ends[0]);
}

StoreProcess::~StoreProcess() {
  kill(process_, SIGKILL);
  reap(process_);
}

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<char> memory_of(int mib) { return std::vector<char>(static_cast<std::size_t>(mib) << 20, 1); }

void report(int pipe, ddp_backend_group* group, ddp_backend_status status, const char* text) {
  Report done = {status, now_us(), ""};
  std::string(text).copy(done.text, sizeof done.text - 1);
  host_backend().group_abort(group);
  host_backend().group_destroy(group);
  if (write(pipe, &done, sizeof done) != sizeof done) throw std::runtime_error("nobody reads the report");
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

std::int64_t pages_of_segments() {
  std::int64_t pages = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    struct stat facts = {};
    if (target.starts_with("/memfd:ddp_group") && stat(entry.path().c_str(), &facts) == 0)
      pages += facts.st_blocks * 512 / 4096;
  }
  return pages;
}

}  // namespace ddp::collectives::test
