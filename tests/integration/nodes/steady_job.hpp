// SPDX-License-Identifier: BSD-3-Clause
// A job of three nodes whose workers are tests/fixtures/steady_worker: what it counts, and what ddprun holds meanwhile.
#pragma once

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "tests/support/hosts.hpp"
#include "tests/support/process.hpp"

namespace ddp::testing {

// What the job has counted, checked line by line: FOLDER/log of the workers.
class Ledger {
 public:
  struct Line {
    std::int64_t step = 0, value = 0;
    std::string writer;
  };

  explicit Ledger(std::string path) : path_(std::move(path)) {}

  // Reads the lines that are new, and returns the newest. Throws if a value is wrong, a step is left out, or a worker
  // writes after its successor.
  Line newest() {
    std::ifstream file(path_);
    file.seekg(read_);
    for (std::string text; std::getline(file, text) && !file.eof(); read_ = file.tellg()) {
      Line line;
      std::istringstream(text) >> line.step >> line.value >> line.writer;
      check(line);
      newest_ = line;
    }
    return newest_;
  }
  // Waits until the job has counted on since this line.
  void goes_on(const Line& since) {
    wait_until([&] { return newest().step > since.step + 3; });
  }
  // Waits until another worker has counted on since this line.
  void goes_on_anew(const Line& since) {
    wait_until([&] { return newest().writer != since.writer && newest().step > since.step + 3; });
  }

 private:
  void check(const Line& line) {
    if (line.writer != newest_.writer && !writers_.insert(line.writer).second)
      fail(line, "its writer was replaced before");
    const auto steps = static_cast<std::int64_t>(values_.size()) - 1;
    if (line.step > steps + 1 || line.step < steps) fail(line, "it does not follow");
    if (line.step == steps + 1) values_.push_back((values_.back() * 3 + 6 * line.step) % 1000003);
    if (line.value != values_[static_cast<std::size_t>(line.step)]) fail(line, "its value is wrong");
  }
  [[noreturn]] void fail(const Line& line, const std::string& why) const {
    throw std::runtime_error("step " + std::to_string(line.step) + " of process " + line.writer + ": " + why +
                             "; the newest was " + std::to_string(newest_.step));
  }

  const std::string path_;
  std::streamoff read_ = 0;
  std::vector<std::int64_t> values_ = {1};  // after each step; ranks 0, 1 and 2 add 1, 2 and 3 times its number
  std::set<std::string> writers_;
  Line newest_;
};

// The job: a ddprun on each of the first three hosts.
class SteadyJob {
 public:
  static constexpr int kNodes = 3;
  // Starts a node's ddprun, whose workers work in this folder.
  using Start = std::function<std::unique_ptr<Process>(int host, const TemporaryFolder& folder)>;

  SteadyJob(const Hosts& hosts, Start start) : hosts_(hosts), start_(std::move(start)) {
    for (int host = 0; host < kNodes; ++host) nodes_.push_back(start_(host, folder_));
    ledger_.goes_on({});
  }

  const TemporaryFolder& folder() const { return folder_; }
  Ledger& ledger() { return ledger_; }
  Process& on(int host) { return *nodes_.at(static_cast<std::size_t>(host)); }

  // Waits until nothing of the node is left, and puts another one in its place.
  void replace(int host) {
    wait_until([&] { return hosts_.processes(host).empty(); });
    nodes_.at(static_cast<std::size_t>(host)) = start_(host, folder_);
  }
  // Has the workers end, and checks that each node ends with 0 and that all they counted is right.
  void end() {
    write_file(folder_ / "stop", "");
    for (const auto& node : nodes_) {
      const Result result = node->wait();
      CAPTURE(result.err);
      CHECK(result.code == 0);
    }
    ledger_.newest();
  }
  // Ends the job, and returns what its nodes have said.
  std::string last_words() {
    std::string words;
    for (const auto& node : nodes_) node->signal(SIGTERM);
    for (const auto& node : nodes_) words += "\n" + node->wait().err;
    return words;
  }

 private:
  const Hosts& hosts_;
  const Start start_;
  TemporaryFolder folder_;
  Ledger ledger_{folder_ / "log"};
  std::vector<std::unique_ptr<Process>> nodes_;
};

// What ddprun's own processes hold.
struct Held {
  int descriptors = 0;
  long pages = 0;  // resident
};

// Returns the sum over the processes on these hosts.
inline Held held(const Hosts& hosts, const std::vector<int>& on) {
  Held sum;
  for (const int host : on) {
    for (const pid_t pid : hosts.processes(host)) {
      const std::string proc = "/proc/" + std::to_string(pid), name = read_file(proc + "/comm");
      if (name != "ddprun\n" && name != "jobkeeper\n" && name.rfind("ddp-", 0) != 0) continue;
      std::error_code gone;
      for (const auto& fd : std::filesystem::directory_iterator(proc + "/fd", gone)) {
        sum.descriptors += !fd.path().empty();
      }
      long size = 0, resident = 0;
      std::istringstream(read_file(proc + "/statm")) >> size >> resident;
      sum.pages += resident;
    }
  }
  return sum;
}

}  // namespace ddp::testing
