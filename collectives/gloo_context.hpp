// SPDX-License-Identifier: BSD-3-Clause
// A Gloo context whose waits can be ended from another thread, which Gloo itself cannot do for all of them: when a
// connection breaks in the middle of a message, or is closed by another thread, whoever waits for the rest of that
// message is not told. So every buffer that somebody may wait on is known here.
#pragma once

#include <gloo/common/error.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <list>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace ddp::collectives {

// The buffers of one context, from the making of each to its end.
class KnownBuffers {
 public:
  using Buffer = gloo::transport::UnboundBuffer;
  struct Links {  // of a list whose elements know their place, so that joining and leaving allocates nothing
    Links* previous = nullptr;
    Links* next = nullptr;
    Buffer* buffer = nullptr;
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
  void end_all_waits() {
    const std::lock_guard lock(mutex_);
    for (const Links* each = first_.next; each != nullptr; each = each->next) {
      each->buffer->abortWaitRecv();
      each->buffer->abortWaitSend();
    }
  }

 private:
  std::mutex mutex_;
  Links first_;
};

// Gloo's own, of which a wait that is ended from outside throws, as every other failure does.
class KnownBuffer : public gloo::transport::UnboundBuffer {
 public:
  using Milliseconds = std::chrono::milliseconds;

  KnownBuffer(std::shared_ptr<KnownBuffers> all, std::unique_ptr<UnboundBuffer> real)
      : UnboundBuffer(real->ptr, real->size), all_(std::move(all)), real_(std::move(real)) {
    links_.buffer = real_.get();
    all_->add(links_);
  }
  ~KnownBuffer() override { all_->remove(links_); }

  bool waitRecv(int* rank, Milliseconds timeout) override {
    if (real_->waitRecv(rank, timeout)) return true;
    throw gloo::IoException("the wait was ended by this process");
  }
  bool waitSend(int* rank, Milliseconds timeout) override {
    if (real_->waitSend(rank, timeout)) return true;
    throw gloo::IoException("the wait was ended by this process");
  }
  void abortWaitRecv() override { real_->abortWaitRecv(); }
  void abortWaitSend() override { real_->abortWaitSend(); }
  void send(int destination, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
    real_->send(destination, slot, offset, bytes);
  }
  void recv(int source, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
    real_->recv(source, slot, offset, bytes);
  }
  void recv(std::vector<int> sources, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
    real_->recv(std::move(sources), slot, offset, bytes);
  }

 private:
  const std::shared_ptr<KnownBuffers> all_;
  const std::unique_ptr<UnboundBuffer> real_;
  KnownBuffers::Links links_;
};

// Gloo's own, all of whose buffers are known.
class KnowingTransport : public gloo::transport::Context {
 public:
  KnowingTransport(std::shared_ptr<gloo::transport::Context> real, std::shared_ptr<KnownBuffers> buffers)
      : Context(real->rank, real->size), real_(std::move(real)), buffers_(std::move(buffers)) {
    setTimeout(real_->getTimeout());
  }

  std::unique_ptr<gloo::transport::Pair>& getPair(int peer) override { return real_->getPair(peer); }
  std::unique_ptr<gloo::transport::Pair>& createPair(int peer) override { return real_->createPair(peer); }
  std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void* data, std::size_t bytes) override {
    return std::make_unique<KnownBuffer>(buffers_, real_->createUnboundBuffer(data, bytes));
  }

 private:
  const std::shared_ptr<gloo::transport::Context> real_;
  const std::shared_ptr<KnownBuffers> buffers_;
};

class GlooContext : public gloo::rendezvous::Context {
 public:
  using Context::Context;

  // Blocks until this rank is connected to all others.
  void connect(gloo::rendezvous::Store& store, std::shared_ptr<gloo::transport::Device>& device) {
    connectFullMesh(store, device);
    transportContext_ = std::make_shared<KnowingTransport>(transportContext_, buffers_);
  }
  // Whoever waits on a buffer of this context gets an exception.
  void end_all_waits() { buffers_->end_all_waits(); }

 private:
  const std::shared_ptr<KnownBuffers> buffers_ = std::make_shared<KnownBuffers>();
};

}  // namespace ddp::collectives
