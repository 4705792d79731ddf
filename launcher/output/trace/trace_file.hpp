// SPDX-License-Identifier: BSD-3-Clause
// The file of a trace: whole lines at any time, so that it loads whatever ends the job. A disk that is full ends it, at
// a whole line. It is a new file, in the place of one that was there.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "rendezvous/base/descriptor.hpp"

namespace ddp::launcher {

// Collectives are left out of a file that is larger: viewers hold all of it in memory.
inline constexpr std::uint64_t kMostTraceBytes = std::uint64_t{1} << 30;

class TraceFile {
 public:
  // Creates the file. Throws rendezvous::Error. `log` takes a line for the user about what goes wrong later.
  TraceFile(std::string path, std::function<void(const std::string&)> log);

  void write(std::string_view lines);
  bool is_full() const { return size_ >= kMostTraceBytes; }
  // Appends what other nodes of the job have written into files beside this one, and removes those files. A part names
  // the job by its epoch.
  void take_in_parts(const std::string& epoch);
  // Ends the array. Nothing is written after it.
  void close();

 private:
  void take_in(const std::string& part, const std::string& epoch);
  void fail(const std::string& what);

  const std::string path_;
  const std::function<void(const std::string&)> log_;
  rendezvous::Descriptor file_;
  std::uint64_t size_ = 0;
};

// Returns where a node writes that does not coordinate: beside the job's file, under a name of its own.
std::string trace_part(const std::string& path, const std::string& host, const std::string& incarnation);
// Returns the line by which take_in_parts() knows that a part belongs to a job.
std::string trace_part_line(const std::string& epoch);

}  // namespace ddp::launcher
