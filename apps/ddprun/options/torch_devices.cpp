// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/options/torch_devices.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/text.hpp"

namespace ddp::apps {

namespace {

// Prints the count or the reason as its last line; what PyTorch itself may print comes before it.
constexpr char kAsk[] = R"python(
import sys
name = sys.argv[1]
try:
    import torch
    if name == "auto":
        device = getattr(torch, "accelerator", None)
    else:
        device = getattr(torch, name, None)
        if not hasattr(device, "device_count"):
            sys.exit(print(f"PyTorch {torch.__version__} knows no devices called {name}"))
    print("%d" % device.device_count() if device and device.is_available() else "PyTorch finds none")
except Exception as error:
    print(f"{type(error).__name__}: {error}")
)python";

// Returns what the command writes to its stdout, or why it could not be started.
std::string output_of(char* const command[], std::string& why_not) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    why_not = strerror(errno);
    return "";
  }
  const rendezvous::Descriptor reading(ends[0]);
  rendezvous::Descriptor writing(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, writing.get(), STDOUT_FILENO);
  pid_t child = 0;
  const int error = posix_spawn(&child, command[0], &actions, nullptr, command, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    why_not = strerror(error);
    return "";
  }
  writing.close();
  std::string text;
  char buffer[4096];
  ssize_t size;
  while ((size = read(reading.get(), buffer, sizeof buffer)) > 0 || (size < 0 && errno == EINTR)) {
    if (size > 0) text.append(buffer, static_cast<std::size_t>(size));
  }
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return text;
}

}  // namespace

TorchDevices ask_torch(const std::string& python, const std::string& device) {
  std::string words[] = {python, "-c", kAsk, device};
  char* command[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), nullptr};
  TorchDevices devices;
  std::string said = output_of(command, devices.why_none);
  if (!devices.why_none.empty()) return devices;
  while (!said.empty() && said.back() == '\n') said.pop_back();
  said.erase(0, said.rfind('\n') + 1);
  devices.count = rendezvous::parse_number<int>(said).value_or(0);
  if (devices.count < 1) devices.why_none = said.empty() ? python + " did not answer" : said;
  return devices;
}

}  // namespace ddp::apps
