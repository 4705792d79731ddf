// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/stacks/frames.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "rendezvous/base/shallow_json.hpp"
#include "rendezvous/base/text.hpp"

namespace ddp::launcher {
namespace {

// Returns the sign of an operator whose name ends here, such as "<<"; empty if none does.
std::string_view operator_sign(const std::string& name, std::string_view rest) {
  if (!name.ends_with("operator")) return "";
  for (const std::string_view sign : {"<=>", "<<=", ">>=", "<<", ">>", "<=", ">=", "->", "<", ">", "()"}) {
    if (rest.starts_with(sign)) return sign;
  }
  return "";
}

// Returns a function's name without the version of its symbol, its parameters and template arguments, which may be
// longer than a screen: "std::vector<int>::at(unsigned long)" becomes "std::vector::at".
std::string short_function_name(const std::string& function) {
  std::string name;
  int depth = 0;
  for (std::size_t i = 0; i < function.size(); ++i) {
    const char c = function[i];
    const std::string_view rest = std::string_view(function).substr(i);
    if (depth == 0 && rest.starts_with("(anonymous namespace)::")) {
      i += std::string_view("(anonymous namespace)::").size() - 1;
    } else if (depth == 0 && (c == '@' || rest.starts_with("::{lambda"))) {
      break;
    } else if (const std::string_view sign = depth == 0 ? operator_sign(name, rest) : ""; !sign.empty()) {
      name += sign;
      i += sign.size() - 1;
    } else if (c == '<' || c == '(') {
      ++depth;
    } else if (c == '>' || c == ')') {
      depth -= depth > 0 ? 1 : 0;
    } else if (depth == 0) {
      name += c;
    }
  }
  if (name.ends_with(" const")) name.resize(name.size() - 6);
  if (const std::size_t type = name.rfind(' '); type != std::string::npos) name.erase(0, type + 1);  // what it returns
  if (name.starts_with("__GI_")) name.erase(0, 5);  // glibc's debug information has its own names
  return name.empty() ? function : name;
}

// A line is "#7  0x00007fdfdb8e7b0d ffi_call - /usr/lib/libffi.so.8"; the function, the file or both may be missing.
StackFrame native_frame(std::string_view line) {
  const std::size_t address = line.find("0x");
  std::size_t rest = address == std::string_view::npos ? line.size() : line.find(' ', address);
  std::string text(line.substr(std::min(rest, line.size())));
  StackFrame frame;
  if (const std::size_t module = text.rfind(" - /"); module != std::string::npos) {
    frame.file = text.substr(module + 3);
    text.resize(module);
  }
  if (const std::size_t first = text.find_first_not_of(' '); first != std::string::npos) {
    frame.function = short_function_name(text.substr(first));
  }
  return frame;
}

// A source is "/home/me/train.cpp:88:5", without the column where that is not known.
void add_source(StackFrame& frame, std::string_view source) {
  const std::size_t file_end = source.find(':');
  if (file_end == std::string_view::npos) return;
  const std::string_view rest = source.substr(file_end + 1);
  const auto line = rendezvous::parse_number<int>(std::string(rest.substr(0, rest.find(':'))));
  if (!line) return;
  frame.source = source.substr(0, file_end);
  frame.line = *line;
}

// The functions by which the interpreter runs a frame, and by which it calls what is written in C.
bool is_of_interpreter(const std::string& function) {
  for (const char* begins :
       {"_PyEval_", "PyEval_", "_PyObject_", "PyObject_", "_PyFunction_", "cfunction_", "method_", "_PyVectorcall_",
        "PyVectorcall_", "_PyMethod", "PyCFunction_", "slot_tp_", "wrap_", "type_call", "pybind11::"}) {
    if (function.starts_with(begins)) return true;
  }
  return false;
}

}  // namespace

std::map<pid_t, std::vector<StackFrame>> native_threads(std::string_view eu_stack_text) {
  std::map<pid_t, std::vector<StackFrame>> threads;
  std::vector<StackFrame>* frames = nullptr;
  while (!eu_stack_text.empty()) {
    const std::size_t end = std::min(eu_stack_text.find('\n'), eu_stack_text.size());
    const std::string_view line = eu_stack_text.substr(0, end);
    eu_stack_text.remove_prefix(std::min(end + 1, eu_stack_text.size()));
    if (line.starts_with("TID ")) {
      const auto id = rendezvous::parse_number<pid_t>(std::string(line.substr(4, line.find(':') - 4)));
      frames = id ? &threads[*id] : nullptr;
    } else if (line.starts_with('#') && frames != nullptr) {
      frames->push_back(native_frame(line));
    } else if (line.starts_with("    ") && frames != nullptr && !frames->empty()) {
      add_source(frames->back(), line.substr(4));
    }
  }
  return threads;
}

void keep_what_python_called(std::vector<StackFrame>& frames) {
  const auto evaluates = [](const StackFrame& frame) {
    const std::string file = frame.file.substr(frame.file.rfind('/') + 1);
    const bool is_python = file.starts_with("python") || file.starts_with("libpython");
    return frame.function.starts_with("_PyEval_EvalFrame") ||
           (frame.function.empty() && is_python);  // Debian's has no names
  };
  frames.erase(std::find_if(frames.begin(), frames.end(), evaluates), frames.end());
  while (!frames.empty() && is_of_interpreter(frames.back().function)) frames.pop_back();
}

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
