// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddp_bench/contenders/gloo_contender.hpp"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace ddp::bench {
namespace {

class GlooStore : public gloo::rendezvous::Store {
 public:
  explicit GlooStore(ddp::Store store) : store_(store) {}
  void set(const std::string& key, const std::vector<char>& data) override {
    store_.set("gloo/" + key, std::string(data.begin(), data.end()));
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = store_.get("gloo/" + key);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, kDefaultTimeout); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    for (const std::string& key : keys) store_.get("gloo/" + key, timeout);
  }

 private:
  ddp::Store store_;
};

class GlooContender : public Contender {
 public:
  GlooContender(ddp::Store store, int rank, int size) {
    GlooStore rendezvous_point(store);
    std::shared_ptr<gloo::transport::Device> device =
        gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr("127.0.0.1"));
    context_ = std::make_shared<gloo::rendezvous::Context>(rank, size);
    context_->connectFullMesh(rendezvous_point, device);
  }

  const char* name() const override { return "gloo"; }
  int rank() const override { return context_->rank; }
  int size() const override { return context_->size; }
  bool has(Collective collective) const override { return collective != Collective::ReduceScatter; }
  void run(Collective collective, const float* input, float* output, std::size_t count) override;

 private:
  template <typename Options, typename Prepare>
  void call(void (*collective)(Options&), Prepare prepare) {
    std::remove_const_t<Options> options(context_);
    prepare(options);
    options.setTag(++tag_);
    collective(options);
  }

  std::vector<float*> parts(float* input, std::size_t part) const {
    std::vector<float*> result;
    result.reserve(static_cast<std::size_t>(size()));
    for (int rank = 0; rank < size(); ++rank) result.push_back(input + part * static_cast<std::size_t>(rank));
    return result;
  }

  std::shared_ptr<gloo::rendezvous::Context> context_;
  std::uint32_t tag_ = 0;
};

using Reduction = void (*)(void*, const void*, const void*, std::size_t);
constexpr Reduction kSum = &gloo::sum<float>;

void GlooContender::run(Collective collective, const float* input, float* output, std::size_t count) {
  float* const in = const_cast<float*>(input);  // Gloo only reads from it
  const std::size_t part = count / static_cast<std::size_t>(size());
  switch (collective) {
    case Collective::AllReduce:
      return call(&gloo::allreduce, [&](gloo::AllreduceOptions& options) {
        options.setOutput(output, count);
        options.setReduceFunction(kSum);
        options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
      });
    case Collective::Broadcast:
      return call(&gloo::broadcast, [&](gloo::BroadcastOptions& options) {
        options.setOutput(output, count);
        options.setRoot(0);
      });
    case Collective::Reduce:
      return call(&gloo::reduce, [&](gloo::ReduceOptions& options) {
        options.setOutput(output, count);
        options.setReduceFunction(kSum);
        options.setRoot(0);
      });
    case Collective::AllGather:
      return call(&gloo::allgather, [&](gloo::AllgatherOptions& options) {
        options.setInput(in, part);
        options.setOutput(output, count);
      });
    case Collective::AllToAll:  // the general form, since libddp's parts may differ in size
      return call(&gloo::alltoallv, [&](gloo::AlltoallvOptions& options) {
        const std::vector<std::int64_t> parts(static_cast<std::size_t>(size()), static_cast<std::int64_t>(part));
        options.setInput(in, parts);
        options.setOutput(output, parts);
      });
    case Collective::Gather:
      return call(&gloo::gather, [&](gloo::GatherOptions& options) {
        options.setInput(in, part);
        if (rank() == 0) options.setOutput(output, count);
        options.setRoot(0);
      });
    case Collective::Scatter:
      return call(&gloo::scatter, [&](gloo::ScatterOptions& options) {
        if (rank() == 0) options.setInputs(parts(in, part), part);
        options.setOutput(output, part);
        options.setRoot(0);
      });
    case Collective::Barrier:
      return call(&gloo::barrier, [](gloo::BarrierOptions&) {});
    case Collective::ReduceScatter:
      break;
  }
  throw std::logic_error("Gloo has no reduce_scatter");
}

}  // namespace

Contender* ddp_bench_gloo_contender(const Store* store, int rank, int size) {
  return new GlooContender(*store, rank, size);
}

}  // namespace ddp::bench
