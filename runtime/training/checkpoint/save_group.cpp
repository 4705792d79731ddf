// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/checkpoint/save_group.hpp"

#include <cstddef>
#include <exception>
#include <new>

#include "runtime/collective/make_operation.hpp"
#include "runtime/collective/object_collectives.hpp"

namespace ddp::runtime {
namespace {

using rendezvous::Error;
using rendezvous::ErrorCode;

constexpr char kWell = '+';

std::string encode(const SaveReport& report) {
  return (report.failure ? static_cast<char>('0' + static_cast<int>(*report.failure)) : kWell) + report.text;
}

SaveReport decode(const ddp_bytes& bytes) {
  const std::string text(static_cast<const char*>(bytes.data), bytes.size);
  SaveReport report{text.substr(1)};
  if (text[0] != kWell) report.failure = static_cast<ErrorCode>(text[0] - '0');
  return report;
}

// Performs a collective on objects of this kind; its root is rank 0.
std::vector<SaveReport> exchange(std::int32_t kind, ProcessGroup& group, const SaveReport& mine) {
  const std::string text = encode(mine);
  const ddp_bytes bytes = {text.data(), text.size()};
  ddp_operation operation = ddp_operation_of(kind, 0, 0);
  operation.objects = &bytes;
  operation.object_count = 1;
  ObjectExchange objects;
  group.run(make_operation(operation, group.place(), &objects));
  std::vector<SaveReport> reports;
  for (const ddp_bytes& each : objects.received()) reports.push_back(decode(each));
  return reports;
}

}  // namespace

SaveReport report_of(const std::function<std::string()>& body) {
  try {
    return {body()};
  } catch (const Error& e) {
    return {e.what(), e.code()};
  } catch (const std::bad_alloc&) {
    return {"out of memory", ErrorCode::System};
  } catch (const std::exception& e) {
    return {e.what(), ErrorCode::System};
  }
}

std::vector<SaveReport> SaveGroup::all_gather_reports(const SaveReport& mine) const {
  return group_ == nullptr ? std::vector{mine} : exchange(DDP_ALL_GATHER_OBJECT, *group_, mine);
}

std::vector<SaveReport> SaveGroup::gather_reports(const SaveReport& mine) const {
  return group_ == nullptr ? std::vector{mine} : exchange(DDP_GATHER_OBJECT, *group_, mine);
}

SaveReport SaveGroup::broadcast_report(const SaveReport& if_first) const {
  return group_ == nullptr ? if_first : exchange(DDP_BROADCAST_OBJECT, *group_, if_first).at(0);
}

SaveReport first_failure(const std::vector<SaveReport>& reports) {
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const SaveReport& each = reports[rank];
    if (!each.failure) continue;
    return {reports.size() > 1 ? "rank " + std::to_string(rank) + ": " + each.text : each.text, each.failure};
  }
  return {};
}

void throw_failure(const std::string& where, const SaveReport& report) {
  if (report.failure) throw Error(*report.failure, where + ": " + report.text);
}

}  // namespace ddp::runtime
