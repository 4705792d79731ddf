// SPDX-License-Identifier: BSD-3-Clause
// The ranks that save together, and the reports they exchange: whether each has done its part, and
// a text for the others. In the end every rank knows the same verdict, so a failure on one rank
// becomes the same error on all.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/error.hpp"
#include "runtime/group/process_group.hpp"

namespace ddp::runtime {

struct SaveReport {
  std::string text = {};                              // what the others need; after a failure: why
  std::optional<rendezvous::ErrorCode> failure = {};  // none: success
};
// Returns a report of what body returns, or of the error it throws.
SaveReport report_of(const std::function<std::string()>& body);

class SaveGroup {
 public:
  // group must be used for nothing else, so that reports wait for no other operation. Null: this
  // process is alone.
  explicit SaveGroup(ProcessGroup* group) : group_(group) {}

  int rank() const { return group_ != nullptr ? group_->rank() : 0; }
  int size() const { return group_ != nullptr ? group_->size() : 1; }
  bool is_first() const { return rank() == 0; }

  // All three are collective and throw rendezvous::Error when a rank is lost or too late.
  std::vector<SaveReport> all_gather_reports(const SaveReport& mine) const;
  std::vector<SaveReport> gather_reports(const SaveReport& mine) const;  // empty on ranks other than 0
  SaveReport broadcast_report(const SaveReport& if_first) const;

 private:
  ProcessGroup* group_;
};

// Returns the first failure, preceded by its rank's number, or a success if there is none.
SaveReport first_failure(const std::vector<SaveReport>& reports);
// Throws "WHERE: text" if the report is a failure.
void throw_failure(const std::string& where, const SaveReport& report);

}  // namespace ddp::runtime
