// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/host/memory/notes.hpp"

#include <algorithm>
#include <string_view>

#include "collectives/backend_error.hpp"
#include "collectives/host/failure.hpp"

namespace ddp::collectives {

using std::chrono::milliseconds;

void Notes::set(const std::string& key, const std::string& value) const {
  BackendError error;
  if (store_.set(store_.context, key.c_str(), value.data(), value.size(), &error) != 0)
    throw Failure(DDP_BACKEND_ERROR, error.text);
}

std::string Notes::get(const std::string& key, const std::string& whose) const {
  std::string value;
  if (!get_within(key, time_left(), value)) throw Failure(DDP_BACKEND_TIMEOUT, whose + " did not come in time");
  return value;
}

bool Notes::look(const std::string& key, std::string& value) const { return get_within(key, milliseconds(1), value); }

void Notes::check_time() const {
  if (Clock::now() >= deadline_) throw Failure(DDP_BACKEND_TIMEOUT, "not all ranks came in time");
}

milliseconds Notes::time_left() const {
  return std::max(std::chrono::duration_cast<milliseconds>(deadline_ - Clock::now()), milliseconds(1));
}

bool Notes::get_within(const std::string& key, milliseconds timeout, std::string& value) const {
  const auto deliver = [](void* sink, const void* bytes, std::size_t size) {
    static_cast<std::string*>(sink)->assign(static_cast<const char*>(bytes), size);
  };
  BackendError error;
  if (store_.get(store_.context, key.c_str(), timeout.count(), &value, deliver, &error) == 0) return true;
  if (std::string_view(error.text).starts_with("timed out")) return false;
  throw Failure(DDP_BACKEND_ERROR, error.text);
}

}  // namespace ddp::collectives
