// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/invocation.hpp"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "launcher/config/program.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/worker_contract.hpp"

namespace ddp::apps {

namespace {

namespace fs = std::filesystem;

// Returns the Python of the environment whose folder of programs this is, also one that cannot be run on this machine;
// empty: there is none.
std::string python_of_environment(const fs::path& bin) {
  std::error_code ignored;
  const fs::path root = bin / "..";
  if (!fs::exists(root / "pyvenv.cfg", ignored) && !fs::exists(root / "conda-meta", ignored)) return "";
  const fs::path python = bin / "python";
  return fs::exists(fs::symlink_status(python, ignored)) ? python.string() : "";
}

// Returns the folder that this program is in.
fs::path own_folder() {
  constexpr char kSelf[] = "/proc/self/exe";
  std::error_code error;
  const fs::path self = fs::read_symlink(kSelf, error);
  if (!error) return self.parent_path();
  throw rendezvous::Error(rendezvous::ErrorCode::System,
                          std::string("cannot find its own program: ") + kSelf + ": " + error.message() +
                              " (is /proc mounted? ddprun also finds there which processes are left of a job)");
}

// Returns the caller that the environment names, if it names one.
std::optional<Caller> read_caller() {
  const char* value = getenv(rendezvous::contract::kCaller);
  const std::string text = value ? value : "";
  const auto space = text.find(' ');
  const auto pid = rendezvous::parse_number<pid_t>(text.substr(0, space));
  if (!pid) return std::nullopt;
  return Caller{*pid, space == std::string::npos ? "" : text.substr(space + 1)};
}

}  // namespace

Invocation read_invocation(const std::string& called_as) {
  Invocation invocation;
  const fs::path path = called_as;
  if (path.filename() == "torchrun") invocation.compatibility = launcher::CompatibilityMode::Torchrun;
  invocation.own_folder = own_folder();
  const fs::path file = path.has_parent_path() ? path : fs::path(launcher::find_in_path(called_as).value_or(""));
  if (file.has_parent_path()) invocation.python = python_of_environment(file.parent_path());
  invocation.file = file.has_parent_path() ? fs::absolute(file).string() : invocation.own_folder + "/ddprun";
  invocation.caller = read_caller();
  return invocation;
}

Invocation invocation_of(const launcher::JobHeader& header) {
  Invocation invocation;
  if (fs::path(header.called_as).filename() == "torchrun") {
    invocation.compatibility = launcher::CompatibilityMode::Torchrun;
  }
  invocation.own_folder = header.own_folder;
  invocation.file = header.called_as;
  invocation.python = header.python;
  invocation.place = header.place;
  return invocation;
}

void end_with(const Caller& caller) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != caller.pid) raise(SIGTERM);  // it died before
}

}  // namespace ddp::apps
