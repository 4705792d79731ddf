// SPDX-License-Identifier: BSD-3-Clause
// A Gloo context whose waits another thread can end. Gloo itself cannot end all of them: when a connection breaks in
// the middle of a message, or another thread closes it, a thread that waits for the rest of that message goes on
// waiting. So this context keeps track of every buffer that a thread may wait on.
#pragma once

#include <gloo/common/error.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <list>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "rendezvous/base/thread.hpp"

namespace ddp::collectives {

// The buffers of one context, each from its construction to its destruction.
class TrackedBuffers {
 public:
  using Buffer = gloo::transport::UnboundBuffer;
  struct Links {  // an intrusive list, so that adding and removing allocates nothing
    Links* previous = nullptr;
    Links* next = nullptr;
    Buffer* buffer = nullptr;
    std::atomic<int> waits_for{-1};  // the rank that the wait depends on; -1: no wait
  };

  void add(Links& links) {
    const std::lock_guard lock(mutex_);
    links.previous = &first_;
    links.next = first_.next;
    if (links.next != nullptr) links.next->previous = &links;
    first_.next = &links;
  }
  void remove(Links& links) {
    const std::lock_guard lock(mutex_);
    links.previous->next = links.next;
    if (links.next != nullptr) links.next->previous = links.previous;
  }
  void end_waits_for(int rank) {
    const std::lock_guard lock(mutex_);
    for (const Links* each = first_.next; each != nullptr; each = each->next) {
      if (each->waits_for != rank) continue;
      each->buffer->abortWaitRecv();
      each->buffer->abortWaitSend();
    }
  }
  void end_all_waits() {
    ended_ = true;
    const std::lock_guard lock(mutex_);
    for (const Links* each = first_.next; each != nullptr; each = each->next) {
      each->buffer->abortWaitRecv();
      each->buffer->abortWaitSend();
    }
  }

  bool ended() const { return ended_; }

 private:
  std::mutex mutex_;
  Links first_;
  std::atomic<bool> ended_{false};
};

// Wraps a buffer of Gloo. A wait that is ended from outside throws, as every other failure does. Each collective makes
// some of these, so their memory is pooled.
class TrackedBuffer : public gloo::transport::UnboundBuffer {
 public:
  using Milliseconds = std::chrono::milliseconds;

  TrackedBuffer(std::shared_ptr<TrackedBuffers> all, std::unique_ptr<UnboundBuffer> real)
      : UnboundBuffer(real->ptr, real->size), all_(std::move(all)), real_(std::move(real)) {
    links_.buffer = real_.get();
    all_->add(links_);
  }
  ~TrackedBuffer() override { all_->remove(links_); }

  static void* operator new(std::size_t size) { return memory().allocate(size); }
  static void operator delete(void* buffer, std::size_t size) { memory().deallocate(buffer, size); }

  bool waitRecv(int* rank, Milliseconds timeout) override {
    links_.waits_for = source_;
    const bool received = real_->waitRecv(rank, timeout);
    links_.waits_for = -1;
    if (!received) throw_ended();
    return true;
  }
  bool waitSend(int* rank, Milliseconds timeout) override {
    links_.waits_for = destination_;
    const bool sent = real_->waitSend(rank, timeout);
    links_.waits_for = -1;
    if (!sent) throw_ended();
    return true;
  }
  void abortWaitRecv() override { real_->abortWaitRecv(); }
  void abortWaitSend() override { real_->abortWaitSend(); }
  void send(int destination, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
    destination_ = destination;
    real_->send(destination, slot, offset, bytes);
  }
  void recv(int source, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
    source_ = source;
    real_->recv(source, slot, offset, bytes);
  }
  void recv(std::vector<int> sources, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
    real_->recv(std::move(sources), slot, offset, bytes);
  }

 private:
  [[noreturn]] void throw_ended() const {
    throw gloo::IoException(all_->ended() ? "the wait was ended by this process"
                                          : "Connection closed by peer in the middle of a message");
  }
  // Never destroyed: Gloo's threads may outlive static objects.
  static std::pmr::memory_resource& memory() {
    static std::pmr::memory_resource* const pool = new std::pmr::synchronized_pool_resource;
    return *pool;
  }

  const std::shared_ptr<TrackedBuffers> all_;
  const std::unique_ptr<UnboundBuffer> real_;
  int source_ = -1;
  int destination_ = -1;
  TrackedBuffers::Links links_;
};

// Wraps Gloo's transport context and tracks every buffer it makes.
class TrackingTransport : public gloo::transport::Context {
 public:
  TrackingTransport(std::shared_ptr<gloo::transport::Context> real, std::shared_ptr<TrackedBuffers> buffers)
      : Context(real->rank, real->size), real_(std::move(real)), buffers_(std::move(buffers)) {
    setTimeout(real_->getTimeout());
  }

  std::unique_ptr<gloo::transport::Pair>& getPair(int peer) override { return real_->getPair(peer); }
  std::unique_ptr<gloo::transport::Pair>& createPair(int peer) override { return real_->createPair(peer); }
  std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void* data, std::size_t bytes) override {
    return std::make_unique<TrackedBuffer>(buffers_, real_->createUnboundBuffer(data, bytes));
  }

 private:
  const std::shared_ptr<gloo::transport::Context> real_;
  const std::shared_ptr<TrackedBuffers> buffers_;
};

class GlooContext : public gloo::rendezvous::Context {
 public:
  using Context::Context;
  ~GlooContext() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    if (watch_.joinable()) watch_.join();
  }

  // Blocks until this rank is connected to all others. Then starts the thread that watches the connections.
  void connect(gloo::rendezvous::Store& store, std::shared_ptr<gloo::transport::Device>& device) {
    connectFullMesh(store, device);
    for (int peer = 0; peer < size; ++peer) {
      sentinels_.push_back(transportContext_->createUnboundBuffer(&nothing_, sizeof nothing_));
      if (peer != rank) sentinels_.back()->recv(peer, kSentinelSlot);
    }
    transportContext_ = std::make_shared<TrackingTransport>(transportContext_, buffers_);
    watch_ = rendezvous::start_thread("ddp-gloo-watch", [this] { watch(); });
  }
  // Makes every wait on a buffer of this context throw.
  void end_all_waits() { buffers_->end_all_waits(); }

 private:
  // No rank ever sends to this slot.
  static constexpr std::uint64_t kSentinelSlot = std::uint64_t{0x4f} << 56;
  // Interval between two checks; Gloo's own thread checks every 10 ms.
  static constexpr std::chrono::milliseconds kTick{100};

  // When a connection breaks, Gloo fails the receives that wait for a message on it, the sentinels among them, but not
  // the receive that has part of its message already. A wait that still goes on at the next check is that one: end it.
  void watch() {
    std::vector<bool> broken(sentinels_.size());
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kTick, [this] { return ending_; })) {
      for (std::size_t peer = 0; peer < sentinels_.size(); ++peer) {
        if (static_cast<int>(peer) == rank) continue;
        if (broken[peer]) buffers_->end_waits_for(static_cast<int>(peer));
        if (!broken[peer]) broken[peer] = has_failed(*sentinels_[peer]);
      }
    }
  }

  // Waits on a sentinel after ending the wait in advance: it returns at once, or throws if the receive has failed.
  static bool has_failed(gloo::transport::UnboundBuffer& sentinel) {
    try {
      sentinel.abortWaitRecv();
      sentinel.waitRecv(std::chrono::minutes(1));
      return false;
    } catch (const gloo::IoException&) {
      return true;
    }
  }

  const std::shared_ptr<TrackedBuffers> buffers_ = std::make_shared<TrackedBuffers>();
  char nothing_ = 0;
  std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> sentinels_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread watch_;
};

}  // namespace ddp::collectives
