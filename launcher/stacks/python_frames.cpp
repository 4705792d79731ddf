// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/stacks/python_frames.hpp"

#include <nlohmann/json.hpp>

#include "rendezvous/base/shallow_json.hpp"

namespace ddp::launcher {

std::optional<std::map<pid_t, PythonThread>> python_threads(std::string_view py_spy_json) {
  try {
    std::map<pid_t, PythonThread> threads;
    for (const nlohmann::json& thread : rendezvous::parse_shallow(py_spy_json)) {
      const nlohmann::json& id = thread.at("os_thread_id");
      if (id.is_null()) continue;  // py-spy could not match it with one of the kernel's
      PythonThread& found = threads[id.get<pid_t>()];
      if (thread.at("thread_name").is_string()) found.name = thread.at("thread_name");
      for (const nlohmann::json& frame : thread.at("frames")) {
        found.frames.push_back({frame.at("name"), frame.at("filename"), frame.at("line")});
      }
    }
    return threads;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace ddp::launcher
