// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/hosts/passed_variables.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "rendezvous/base/error.hpp"

namespace ddp::launcher {
namespace {

// Names, and beginnings of names that end in '*'. Not CUDA_VISIBLE_DEVICES and its like, which are about one machine,
// and not what a launcher has told this process about itself (TORCHELASTIC_RUN_ID, DDPRUN_AGENT_SOCKET).
constexpr std::string_view kPassed[] = {
    "PATH",
    "LD_LIBRARY_PATH",
    "VIRTUAL_ENV",
    "CONDA_*",
    "PYTHON*",
    "PYTORCH_*",
    "TORCH_*",
    "TORCHDYNAMO_*",
    "TORCHINDUCTOR_*",
    "TORCHELASTIC_ENABLE_FILE_TIMER",
    "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE",
    "TORCH_ELASTIC_SHUTDOWN_TIMEOUT",
    "PET_*",
    "DDP_*",
    "LOGLEVEL",
    "NCCL_*",
    "GLOO_*",
    "UCX_*",
    "FI_*",
    "OMP_*",
    "MKL_*",
    "KMP_*",
    "HF_*",
};

constexpr std::string_view kOptions[] = {
    "PET_*",
    "DDPRUN_SECRET_FILE",
    "TORCHELASTIC_*",
    "TORCH_ELASTIC_SHUTDOWN_TIMEOUT",
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE",
    "LOGLEVEL",
};

template <typename Patterns>
bool is_one_of(const Patterns& patterns, std::string_view name) {
  return std::any_of(std::begin(patterns), std::end(patterns), [name](std::string_view pattern) {
    return pattern.ends_with('*') ? name.starts_with(pattern.substr(0, pattern.size() - 1)) : name == pattern;
  });
}

std::string_view name_of(std::string_view variable) { return variable.substr(0, variable.find('=')); }

bool is_name(std::string_view name) {
  return !name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) == 0 &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

}  // namespace

bool sets_option(std::string_view name) { return is_one_of(kOptions, name); }

std::vector<std::string> own_environment() {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry; ++entry) variables.emplace_back(*entry);
  return variables;
}

void set_variable(const std::string& variable) {
  const auto equals = variable.find('=');
  setenv(variable.substr(0, equals).c_str(), variable.c_str() + equals + 1, 1);
}

std::vector<std::string> passed_variables(const std::vector<std::string>& environment,
                                          const std::vector<std::string>& wanted) {
  std::vector<std::string> passed;
  for (const std::string& variable : environment) {
    const std::string_view name = name_of(variable);
    if (is_one_of(kPassed, name)) passed.push_back(variable);
  }
  for (const std::string& want : wanted) {
    const std::string_view name = name_of(want);
    if (!is_name(name)) rendezvous::invalid_argument("-x " + want + ": give NAME or NAME=VALUE");
    std::erase_if(passed, [name](const std::string& variable) { return name_of(variable) == name; });
    if (name.size() < want.size()) {
      passed.push_back(want);
      continue;
    }
    const auto found = std::find_if(environment.begin(), environment.end(),
                                    [name](const std::string& variable) { return name_of(variable) == name; });
    if (found == environment.end()) rendezvous::invalid_argument("-x " + want + ": there is no such variable here");
    passed.push_back(*found);
  }
  return passed;
}

}  // namespace ddp::launcher
