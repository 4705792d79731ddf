// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/coordination/standing.hpp"

#include <atomic>

#include "rendezvous/base/text.hpp"

namespace ddp::launcher {

struct Standing::Page {
  std::atomic<bool> holds{false};  // the next two belong together
  std::atomic<std::int64_t> lease{0}, epoch{0};
  std::atomic<std::int64_t> obeyed{0};
  std::atomic<bool> has_left{false};
};

Standing::Standing() = default;
Standing::~Standing() = default;

void Standing::hold(const Inheritance& held) {
  page_->holds = false;
  page_->lease = held.lease;
  page_->epoch = held.epoch;
  page_->holds = true;
}

void Standing::release() { page_->holds = false; }

std::optional<Standing::Inheritance> Standing::held() const {
  if (!page_->holds) return std::nullopt;
  return Inheritance{page_->lease, page_->epoch};
}

void Standing::obey(const std::string& epoch) {
  page_->obeyed = rendezvous::parse_number<std::int64_t>(epoch).value_or(0);
}

std::string Standing::obeyed() const {
  const std::int64_t epoch = page_->obeyed;
  return epoch == 0 ? "" : std::to_string(epoch);
}

void Standing::leave() { page_->has_left = true; }
bool Standing::has_left() const { return page_->has_left; }

}  // namespace ddp::launcher
