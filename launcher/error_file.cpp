// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/error_file.hpp"

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace ddp::launcher {

namespace {

constexpr std::size_t kMaxBytes = 64 << 10;  // tracebacks are a few KiB

using nlohmann::json;

std::string text_of(const json& content) {
  const auto message = content.find("message");
  if (message == content.end()) return "";
  if (message->is_string()) return message->get<std::string>();
  if (!message->is_object()) return "";
  std::string text = message->value("message", "");
  const auto extra = message->find("extraInfo");
  if (extra != message->end() && extra->is_object()) {
    const auto callstack = extra->find("py_callstack");
    if (callstack != extra->end() && callstack->is_string()) {
      const auto trace = callstack->get<std::string>();
      // PyTorch's callstack ends with the message: say it once.
      if (!trace.empty()) text = trace.find(text) != std::string::npos ? trace : text + "\n" + trace;
    }
  }
  return text;
}

}  // namespace

std::string read_error_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return "";
  std::string bytes(kMaxBytes, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<std::size_t>(file.gcount()));
  const json content = json::parse(bytes, nullptr, /*allow_exceptions=*/false);
  std::string text = bytes;
  if (content.is_object()) {
    try {
      text = text_of(content);
    } catch (const json::exception&) {  // a shape nobody uses: show the bytes
    }
  }
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

}  // namespace ddp::launcher
