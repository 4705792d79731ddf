// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/stacks/frames.hpp"

#include <catch2/catch.hpp>
#include <string>

using namespace ddp::launcher;

namespace {

// Returns the functions of one thread's frames that eu-stack would print so.
std::vector<std::string> functions(const std::vector<std::string>& lines, bool python = false) {
  std::string text = "PID 7 - process\nTID 7:\n";
  for (std::size_t i = 0; i < lines.size(); ++i)
    text += "#" + std::to_string(i) + "  0x00007f95a1af1df2 " + lines[i] + "\n";
  std::vector<StackFrame> frames = native_threads(text)[7];
  if (python) keep_what_python_called(frames);
  std::vector<std::string> names;
  for (const StackFrame& frame : frames) names.push_back(frame.function);
  return names;
}

}  // namespace

TEST_CASE("native frames: what eu-stack prints of several threads, with and without symbols", "[launcher][unit]") {
  const auto threads = native_threads(
      "PID 7 - process\n"
      "TID 7:\n"
      "#0  0x00007f95a1af1df2 pause - /usr/lib/libc.so.6\n"
      "#1  0x00007f95a0c2bf7a - /usr/lib/libffi.so.8.1.2\n"
      "TID 9:\n"
      "#0  0x00007f95a1af1df2\n"
      "#10 0x00007f95a1af1df2 main\n");
  REQUIRE(threads.size() == 2);
  CHECK(threads.at(7) == std::vector<StackFrame>{{"pause", "/usr/lib/libc.so.6"}, {"", "/usr/lib/libffi.so.8.1.2"}});
  CHECK(threads.at(9) == std::vector<StackFrame>{{"", ""}, {"main", ""}});
  CHECK(native_threads("eu-stack: dwfl_thread_getframes tid 7: No such process\n").empty());
}

TEST_CASE("native frames: names come without parameters, template arguments, results and versions",
          "[launcher][unit]") {
  CHECK(functions({"pthread_cond_wait@@GLIBC_2.3.2 - /usr/lib/libc.so.6",
                   "std::vector<int, std::allocator<int> >::at(unsigned long) const",
                   "ddp::(anonymous namespace)::wait(std::function<void (int)> const&) - /usr/lib/libddp.so",
                   "void run<Worker>(Worker&&)", "__GI___poll", "operator<<(std::ostream&, StackFrame const&)",
                   "Pool::start()::{lambda()#1}::operator()() const"}) ==
        std::vector<std::string>{"pthread_cond_wait", "std::vector::at", "ddp::wait", "run", "__poll", "operator<<",
                                 "Pool::start"});
}

TEST_CASE("native frames: of an interpreter's stack, what the innermost Python frame has called stays",
          "[launcher][unit]") {
  CHECK(functions({"clock_nanosleep", "time_sleep", "cfunction_vectorcall_O", "PyObject_Vectorcall",
                   "_PyEval_EvalFrameDefault", "_PyEval_Vector", "main"},
                  true) == std::vector<std::string>{"clock_nanosleep", "time_sleep"});
  CHECK(functions({"_PyEval_EvalFrameDefault", "main"}, true).empty());
  // Debian's interpreter has no names.
  CHECK(functions({"clock_nanosleep - /usr/lib/libc.so.6", "- /usr/bin/python3.11", "- /usr/bin/python3.11",
                   "main - /usr/bin/python3.11"},
                  true) == std::vector<std::string>{"clock_nanosleep"});
}
