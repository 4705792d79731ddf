// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/diagnosis/call_log.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "rendezvous/base/text.hpp"
#include "rendezvous/base/text_stream.hpp"
#include "rendezvous/store/store.hpp"
#include "runtime/collective/describe_operation.hpp"

namespace ddp::runtime {
namespace {

using std::chrono::milliseconds;
using std::chrono::system_clock;

constexpr std::size_t kGroupsKept = 16;  // groups that this rank has left
constexpr std::size_t kRanksDescribed = 4;
constexpr milliseconds kReadTimeout{1000};  // for keys that exist already
constexpr char kStateLetters[] = {'r', 'e', 'l'};

// Each entry takes one line and ends with the group, whose name may contain anything but a newline.
std::string without_newlines(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string ago(system_clock::time_point then, system_clock::time_point now) {
  const auto age = std::chrono::duration_cast<milliseconds>(std::max(now - then, system_clock::duration::zero()));
  return rendezvous::to_string(age < milliseconds(1000) ? age : std::chrono::duration_cast<std::chrono::seconds>(age));
}

std::optional<LastCall> decode_line(const std::string& line) {
  rendezvous::TextStream fields(line);
  LastCall call;
  char state = 0;
  std::int64_t since = 0;
  std::getline(fields, call.call, '\t');
  fields >> call.sequence >> state >> since;
  const auto* known = std::find(std::begin(kStateLetters), std::end(kStateLetters), state);
  if (!fields || fields.get() != '\t' || known == std::end(kStateLetters)) return std::nullopt;
  call.state = static_cast<LastCall::State>(known - std::begin(kStateLetters));
  call.since = system_clock::time_point(milliseconds(since));
  std::getline(fields, call.group);
  return call;
}

}  // namespace

std::string encode(const std::map<std::string, LastCall>& calls) {
  std::string text;
  for (const auto& [group, call] : calls) {
    const auto since = std::chrono::duration_cast<milliseconds>(call.since.time_since_epoch());
    text += call.call + '\t' + std::to_string(call.sequence) + ' ' +
            kStateLetters[static_cast<std::size_t>(call.state)] + ' ' + std::to_string(since.count()) + '\t' + group +
            '\n';
  }
  return text;
}

std::vector<LastCall> decode(const std::string& text) {
  rendezvous::TextStream lines(text);
  std::vector<LastCall> calls;
  for (std::string line; std::getline(lines, line);) {
    if (std::optional<LastCall> call = decode_line(line)) calls.push_back(std::move(*call));
  }
  return calls;
}

std::string describe(const std::vector<LastCall>& calls, const std::string& group, system_clock::time_point now) {
  const auto here = std::find_if(calls.begin(), calls.end(), [&](const LastCall& c) { return c.group == group; });
  std::string text;
  if (here == calls.end() || (here->call.empty() && here->state != LastCall::State::Left)) {
    text = "it has called nothing in this group yet";
  } else if (here->state == LastCall::State::Running) {
    text = "it has been in " + here->call + " for " + ago(here->since, now);
  } else if (here->state == LastCall::State::Ended) {
    text = "its last call was " + here->call + ", ended " + ago(here->since, now) + " ago";
  } else {
    text = "it left the group " + ago(here->since, now) + " ago" +
           (here->call.empty() ? "" : ", its last call was " + here->call);
  }
  for (const LastCall& call : calls) {
    if (call.group == group || call.state != LastCall::State::Running) continue;
    text += "; in the group " + call.group + " it has been in " + call.call + " for " + ago(call.since, now);
  }
  return text;
}

CallLog::CallLog(std::unique_ptr<rendezvous::Store> store, std::string prefix, int rank)
    : store_(std::move(store)), prefix_(std::move(prefix)), rank_(rank) {}

CallLog::~CallLog() = default;

template <typename Change>
void CallLog::change(const std::string& group, Change&& how) {
  const std::lock_guard lock(mutex_);
  try {
    LastCall& call = calls_[without_newlines(group)];
    how(call);
    call.since = system_clock::now();
    store_->set(prefix_ + std::to_string(rank_), encode(calls_));
  } catch (const std::exception&) {
    // The other ranks then have no record of this call.
  }
}

void CallLog::began(const std::string& group, std::uint64_t sequence, const std::string& call) {
  change(group, [&](LastCall& last) { last = {"", sequence, LastCall::State::Running, {}, without_newlines(call)}; });
}

void CallLog::ended(const std::string& group) {
  change(group, [](LastCall& last) { last.state = LastCall::State::Ended; });
}

void CallLog::left(const std::string& group) {
  change(group, [&](LastCall& last) {
    last.state = LastCall::State::Left;
    const auto is_past = [](const auto& entry) { return entry.second.state == LastCall::State::Left; };
    if (static_cast<std::size_t>(std::count_if(calls_.begin(), calls_.end(), is_past)) <= kGroupsKept) return;
    const auto oldest = std::min_element(calls_.begin(), calls_.end(), [&](const auto& a, const auto& b) {
      return std::pair(!is_past(a), a.second.since) < std::pair(!is_past(b), b.second.since);
    });
    if (&oldest->second != &last) calls_.erase(oldest);
  });
}

std::vector<LastCall> CallLog::read(int rank) {
  const std::string key = prefix_ + std::to_string(rank);
  return store_->check({key}) ? decode(store_->get(key, kReadTimeout)) : std::vector<LastCall>();
}

std::string CallLog::describe_missing_callers(const std::string& group, const std::vector<int>& members,
                                              std::uint64_t sequence, const std::string& call) {
  const std::lock_guard lock(mutex_);
  const std::string id = without_newlines(group);
  std::vector<std::size_t> silent;
  std::string text;
  try {
    for (std::size_t rank = 0; rank < members.size(); ++rank) {
      if (members[rank] == rank_) continue;
      // A rank has called the operation if its last call in the group is this one or a later one.
      const std::vector<LastCall> calls = read(members[rank]);
      const auto here = std::find_if(calls.begin(), calls.end(), [&](const LastCall& c) { return c.group == id; });
      const bool came_so_far = here != calls.end() && here->sequence >= sequence;
      const bool differs = came_so_far && here->sequence == sequence && !here->call.starts_with(call);
      if (came_so_far && !differs) continue;
      silent.push_back(rank);
      if (silent.size() > kRanksDescribed) continue;
      text += (text.empty() ? "rank " : "; rank ") + std::to_string(rank) + " did not call " + call + "; " +
              describe(calls, id, system_clock::now());
    }
  } catch (const std::exception&) {
    return "";
  }
  if (silent.size() <= kRanksDescribed) return text;
  silent.erase(silent.begin(), silent.begin() + kRanksDescribed);
  return text + "; nor did " + rank_list(silent);
}

std::string CallLog::last_call_of(const std::string& group, const std::vector<int>& members, int rank) {
  const std::lock_guard lock(mutex_);
  try {
    return "rank " + std::to_string(rank) + ": " +
           describe(read(members.at(static_cast<std::size_t>(rank))), without_newlines(group), system_clock::now());
  } catch (const std::exception&) {
    return "";
  }
}

}  // namespace ddp::runtime
