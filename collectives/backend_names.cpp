// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/backend_names.hpp"

#include <algorithm>

#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text_stream.hpp"

namespace ddp::collectives {
namespace {

constexpr const char* kDefault = "ddp";

[[noreturn]] void refuse(const std::string& text, const std::string& why) {
  throw rendezvous::Error(rendezvous::ErrorCode::InvalidArgument,
                          "backend \"" + text + "\": " + why +
                              "; give \"ddp\", \"gloo\", \"nccl\", \"cpu:ddp,cuda:nccl\" or a plug-in's name");
}

bool is_name(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

void add(BackendNames& names, const std::string& text, const std::string& device, const std::string& name) {
  if (device != "cpu" && device != "cuda") refuse(text, "\"" + device + "\" is neither cpu nor cuda");
  if (!is_name(name)) refuse(text, "\"" + name + "\" is not a backend's name");
  if (device == "cuda" && (name == "gloo" || name == "ddp")) refuse(text, name + " serves the CPU's memory only");
  if (device == "cpu" && name == "nccl") refuse(text, "nccl serves the memory of CUDA devices only");
  std::string& served = device == "cpu" ? names.cpu : names.cuda;
  if (!served.empty()) refuse(text, device + " has two backends, " + served + " and " + name);
  served = name;
}

}  // namespace

BackendNames parse_backend_names(const std::string& text) {
  std::string lower = text.empty() ? kDefault : text;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  BackendNames names;
  if (lower.find_first_of(":,") == std::string::npos) {
    add(names, text, lower == "nccl" ? "cuda" : "cpu", lower);
    return names;
  }
  if (lower.back() == ',') refuse(text, "a name is missing after the comma");
  rendezvous::TextStream list(lower);
  for (std::string entry; std::getline(list, entry, ',');) {
    const std::size_t colon = entry.find(':');
    if (colon == std::string::npos) refuse(text, "\"" + entry + "\" does not say for which device, cpu or cuda");
    add(names, text, entry.substr(0, colon), entry.substr(colon + 1));
  }
  return names;
}

std::string to_string(const BackendNames& names) {
  if (names.cpu.empty()) return names.cuda;
  return names.cuda.empty() ? names.cpu : "cpu:" + names.cpu + ",cuda:" + names.cuda;
}

}  // namespace ddp::collectives
