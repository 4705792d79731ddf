// SPDX-License-Identifier: BSD-3-Clause
// A journal in etcd: it outlives the machine of the coordinator, and one process of the whole job can claim it at a
// time. lease_core decides; this asks etcd and keeps the time. Everything happens on the thread that runs the
// io_context.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "rendezvous/etcd/client.hpp"
#include "rendezvous/etcd/lease_core.hpp"
#include "rendezvous/journal/journal.hpp"
#include "rendezvous/net/asio.hpp"

namespace ddp::rendezvous {

class EtcdJournal : public Journal {
 public:
  // Besides those of every journal. Each may be empty.
  struct Watchers {
    std::function<std::chrono::milliseconds()> head_start = {};  // as LeaseConfig's, asked before each step
    std::function<void()> on_ask = {};  // comes before each request, until this process leads; may end the process
    std::function<void(std::int64_t epoch, const std::string& note)> on_other;  // another process leads
    std::function<void(const std::string& why)> on_doubt;                       // from now on may_tell() is false
    std::function<void()> on_sure = {};                                         // it is true again
    std::function<void(const std::string& why)> on_trouble;  // for the log: "etcd at 10.0.0.1:2379: no answer in 1 s"
  };

  // The loop must have stopped, or be run by the caller's thread, when the journal is destroyed. Throws Error.
  EtcdJournal(asio::io_context& io, EtcdSettings settings, LeaseConfig config, Watchers watchers);
  ~EtcdJournal() override;

  // A claim is answered once no other process leads.
  void claim(Callbacks callbacks) override;
  void write(std::uint64_t number, std::string content) override;

  // Also false if the process was stopped, and has only just come back.
  bool may_tell() const override;
  // Returns what another process of this machine can inherit; lease 0 before the claim.
  LeaseConfig::Inheritance inheritance() const;

  // Removes the job's keys. Without it they go with their leases.
  void release(std::function<void(bool are_keys_gone)> on_released) override;
  std::size_t most_content_bytes() const override { return kMostContentBytes; }

 private:
  class Driver;
  std::shared_ptr<Driver> driver_;
};

}  // namespace ddp::rendezvous
