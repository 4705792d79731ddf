// SPDX-License-Identifier: BSD-3-Clause
// The ranks that save together, and what they tell each other of it: whether each has done its part, and the words for
// the others. So all of them know the same in the end, and a failure of one is the same error on all.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/error.hpp"
#include "runtime/group/process_group.hpp"

namespace ddp::runtime {

struct SaveReport {
  std::string text = {};                              // for the others; of a failure: why
  std::optional<rendezvous::ErrorCode> failure = {};  // none: it went well
};
// What body returns, or its failure.
SaveReport report_of(const std::function<std::string()>& body);

class SaveGroup {
 public:
  // group: of its own, so that what is told here waits for nothing else. Null: this process alone.
  explicit SaveGroup(ProcessGroup* group) : group_(group) {}

  int rank() const { return group_ != nullptr ? group_->rank() : 0; }
  int size() const { return group_ != nullptr ? group_->size() : 1; }
  bool is_first() const { return rank() == 0; }

  // Collective; throw rendezvous::Error when a rank is lost or too late.
  std::vector<SaveReport> all_gather_reports(const SaveReport& mine) const;
  std::vector<SaveReport> gather_reports(const SaveReport& mine) const;  // empty on the others
  SaveReport broadcast_report(const SaveReport& if_first) const;

 private:
  ProcessGroup* group_;
};

// The first failure, with its rank's number; none.
SaveReport first_failure(const std::vector<SaveReport>& reports);
// Throws the failure, if it is one: "WHERE: text".
void throw_failure(const std::string& where, const SaveReport& report);

}  // namespace ddp::runtime
