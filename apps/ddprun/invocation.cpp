// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/invocation.hpp"

#include <unistd.h>

#include <filesystem>

#include "launcher/config/program.hpp"

namespace ddp::apps {

namespace {

namespace fs = std::filesystem;

std::string python_of_environment(const fs::path& bin) {
  std::error_code ignored;
  const fs::path root = bin / "..";
  if (!fs::exists(root / "pyvenv.cfg", ignored) && !fs::exists(root / "conda-meta", ignored)) return "";
  const fs::path python = bin / "python";
  return access(python.c_str(), X_OK) == 0 ? python.string() : "";
}

}  // namespace

Invocation read_invocation(const std::string& called_as) {
  Invocation invocation;
  const fs::path path = called_as;
  if (path.filename() == "torchrun") invocation.compatibility = launcher::CompatibilityMode::Torchrun;
  invocation.own_folder = fs::read_symlink("/proc/self/exe").parent_path();
  const fs::path file = path.has_parent_path() ? path : fs::path(launcher::find_in_path(called_as).value_or(""));
  if (file.has_parent_path()) invocation.python = python_of_environment(file.parent_path());
  return invocation;
}

}  // namespace ddp::apps
