// SPDX-License-Identifier: BSD-3-Clause
// The state of a job as a page of text: for `ddprun ps JOB` and reports.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "launcher/local/job_view.hpp"

namespace ddp::apps {

class JobPage {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Returns the lines of the page. The shares of a CPU are of the time since the page before; the first has none.
  std::vector<std::string> lines(const launcher::JobView& job, Time now);

 private:
  using Row = std::vector<std::string>;

  std::vector<Row> workers(const launcher::JobView& job, Time now);
  std::string cpu_share(const std::string& node, const launcher::WorkerView& worker, Time now);

  struct Used {
    std::int64_t cpu_ms = 0;
    Time at;
  };
  std::map<std::pair<std::string, pid_t>, Used> used_;  // by node and pid, at the page before
  std::map<std::pair<std::string, pid_t>, Used> newest_;
};

}  // namespace ddp::apps
