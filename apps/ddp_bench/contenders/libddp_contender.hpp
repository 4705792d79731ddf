// SPDX-License-Identifier: BSD-3-Clause
// libddp, called through its public interface in its default mode.
#pragma once

#include "apps/ddp_bench/contenders/contender.hpp"
#include "ddp/ddp.hpp"

namespace ddp::bench {

enum class Calling { Blocking, Asynchronous };  // Asynchronous: issued, then waited for at once

class LibddpContender : public Contender {
 public:
  // `device` is where the buffers are.
  LibddpContender(ProcessGroup group, Calling calling, Device device = {})
      : group_(group), calling_(calling), device_(device) {}

  const char* name() const override { return calling_ == Calling::Blocking ? "libddp" : "libddp_async"; }
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  void run(Collective collective, const float* input, float* output, std::size_t count) override;
  Work issue(Collective collective, const float* input, float* output, std::size_t count) const;

 private:
  void call(Collective collective, const float* input, float* output, std::size_t count, ddp_work* work) const;

  ProcessGroup group_;
  Calling calling_;
  Device device_;
};

// Contender whose buffers come from ProcessGroup::allocate().
class LibddpInPlaceContender : public LibddpContender {
 public:
  explicit LibddpInPlaceContender(ProcessGroup group) : LibddpContender(group, Calling::Blocking), allocator_(group) {}

  const char* name() const override { return "libddp_in_place"; }
  std::shared_ptr<float[]> allocate(std::size_t count) override { return allocator_.allocate<float>(count); }

 private:
  ProcessGroup allocator_;
};

}  // namespace ddp::bench
