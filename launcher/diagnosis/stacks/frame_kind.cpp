// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/stacks/frame_kind.hpp"

#include <algorithm>

namespace ddp::launcher {
namespace {

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

bool is_of_libddp(const StackFrame& frame) {
  return contains(frame.file, "/libddp.so") || contains(frame.source, "/include/ddp/") ||
         frame.function.starts_with("ddp::") || frame.function.starts_with("ddp_");
}

// Its Python half, which need not be an installed package.
bool is_of_ddprun(const StackFrame& frame) {
  return contains(frame.file, "/ddprun/torch/") || contains(frame.file, "/ddprun/recovery/");
}

}  // namespace

bool is_users(const StackFrame& frame) {
  if (frame.file.starts_with('<') || is_of_ddprun(frame)) return false;  // '<': "<frozen runpy>"
  return !contains(frame.file, "/site-packages/") && !contains(frame.file, "/dist-packages/") &&
         !contains(frame.file, "/lib/python3.");
}

bool is_programs(const StackFrame& frame) {
  for (const char* systems : {"/usr/", "/lib"}) {
    if (frame.file.starts_with(systems) || frame.source.starts_with(systems)) return false;
  }
  const std::string& function = frame.function;
  return !function.empty() && function[0] != '_' && !function.starts_with("std::") && !is_of_libddp(frame);
}

bool is_distributed(const StackFrame& frame) {
  if (contains(frame.file, "/torch/distributed/")) return frame.function != "wrapper";
  if (is_of_ddprun(frame)) return true;
  for (const char* begins : {"c10d::", "gloo::", "nccl"}) {
    if (frame.function.starts_with(begins)) return true;
  }
  return is_of_libddp(frame);
}

const StackFrame* users_frame(const ThreadStack& thread) {
  const bool is_python = !thread.python.empty();
  const std::vector<StackFrame>& frames = is_python ? thread.python : thread.native;
  const auto found = std::find_if(frames.begin(), frames.end(), is_python ? is_users : is_programs);
  return found == frames.end() ? nullptr : &*found;
}

const StackFrame* distributed_call(const ThreadStack& thread) {
  const auto python = std::find_if(thread.python.begin(), thread.python.end(),
                                   [](const StackFrame& f) { return is_users(f) || is_distributed(f); });
  if (python != thread.python.end() && !is_users(*python)) return &*python;
  const StackFrame* outermost = nullptr;
  for (const StackFrame& frame : thread.native) {
    if (thread.python.empty() && is_programs(frame)) break;
    if (is_distributed(frame)) outermost = &frame;
  }
  return outermost;
}

std::string place_of(const StackFrame& frame) {
  const std::string& path = frame.source.empty() ? frame.file : frame.source;
  const std::string name = path.substr(path.rfind('/') + 1);
  return frame.line > 0 ? name + ":" + std::to_string(frame.line) : name;
}

}  // namespace ddp::launcher
