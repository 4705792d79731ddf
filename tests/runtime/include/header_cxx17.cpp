// SPDX-License-Identifier: BSD-3-Clause
// The public headers are C++17 and work with either std::string ABI: built twice, with every warning an error, and run
// as a world of one; headers_test.sh compiles it with other compilers. Exit code 0: all went well.
#include "ddp/ddp.hpp"

int main() {
  const ddp::Session session = ddp::init_process_group();
  float w = 1;
  float g = 3;
  ddp::DistributedDataParallel model(session.world(), {{"w", &w, &g, 1}});
  {
    const auto local = model.no_sync();
    model.mark_ready(0);
  }
  model.mark_ready(0);
  model.synchronize();
  const ddp::PrefixStore store("mine", session.store());
  store.set("k", "v");
  if (session.store().get("mine/k") != "v" || store.queue_try_pop("q")) return 4;
  std::vector<double> values = {1, 2};
  session.world().all_reduce_async(values, ddp::ReduceOp::Avg).wait();
  session.world().with_timeout(std::chrono::seconds(5)).barrier();
  try {
    session.world().broadcast(values, 1);
    return 1;
  } catch (const ddp::Error& e) {
    if (std::string(e.what()).find("root 1 is not a rank") == std::string::npos) return 2;
  }
  return g == 3 && ddp::DistributedSampler(5, 1, 0).indices().size() == 5 ? 0 : 3;
}
