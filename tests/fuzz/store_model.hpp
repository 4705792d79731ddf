// SPDX-License-Identifier: BSD-3-Clause
// The store in its simplest form: plain maps and one list of waiting connections, which every
// request searches. StoreCore's answers must equal this model's, byte for byte. The model is slow
// where StoreCore is fast, and shares no code with it. Ids of connections that exist at the same
// time must differ modulo kConnections.
#pragma once

#include <array>
#include <deque>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/store/store_core.hpp"
#include "tests/fuzz/store_script.hpp"

namespace ddp::rendezvous::fuzz {

class StoreModel {
 public:
  StoreModel() = default;

  // The result of a request: bytes for some connections; the one that asked may have to be closed.
  struct Outcome {
    std::array<std::string, kConnections> sent;
    bool closes = false;

    std::string& to(ConnectionId connection) { return sent[connection % kConnections]; }
  };

  Outcome apply(ConnectionId from, const Request& request);
  void disconnected(ConnectionId connection);
  void reset() { *this = StoreModel(limit_); }
  void set_limit(std::size_t bytes) { limit_ = bytes; }

  std::size_t waiting() const { return parked_.size(); }
  std::size_t bytes() const;  // what is kept, by the costs in store_core.hpp

 private:
  struct Parked {
    ConnectionId who;
    std::vector<std::string> missing;
    std::size_t places;  // how many were missing at first
  };

  explicit StoreModel(std::size_t limit) : limit_(limit) {}

  bool exists(const std::string& key) const { return values_.count(key) > 0 || queues_.count(key) > 0; }
  std::string value_or_empty(const std::string& key) const { return values_.count(key) > 0 ? values_.at(key) : ""; }
  bool parse(const std::string& key, std::int64_t& number) const;
  void park(ConnectionId who, const std::vector<std::string>& missing, Outcome& out);
  void leave(ConnectionId who);
  void wake(const std::string& key, bool only_one, Outcome& out);
  template <typename Change>
  bool keep(Change change, Outcome& out);
  void put(const std::string& key, const std::string& value, Outcome& out);
  void tell_watchers(const std::string& key, Answer change, const std::string& before, const std::string& after,
                     Outcome& out);

  std::size_t limit_ = std::numeric_limits<std::size_t>::max();
  std::map<std::string, std::string> values_;
  std::map<std::string, std::deque<std::string>> queues_;
  std::vector<Parked> parked_;  // in order of arrival
  std::map<std::string, std::set<ConnectionId>> watchers_;
};

}  // namespace ddp::rendezvous::fuzz
