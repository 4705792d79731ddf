// SPDX-License-Identifier: BSD-3-Clause
// ddp_bench: puts load on what is measured and prints one JSON object a line.
//   store        clients of any c10d store on this machine; scripts/benchmarks/store starts the servers
//   rendezvous   the agents of thousands of nodes, for one real ddprun that coordinates them
//   collectives  a rank of a job: libddp's collectives, plain Gloo's and what memory allows in turn;
//                scripts/benchmarks/collectives prints the table
//   nccl         a rank of a job: collectives on GPU memory, through libddp and by NCCL's own calls in turn
//   ddp          a rank of a job: training steps with DistributedDataParallel; scripts/benchmarks/ddp prints the table
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "apps/ddp_bench/collectives/command.hpp"
#include "apps/ddp_bench/collectives/device_rounds.hpp"
#include "apps/ddp_bench/contenders/gloo_contender.hpp"
#include "apps/ddp_bench/contenders/libddp_contender.hpp"
#include "apps/ddp_bench/contenders/memory_contender.hpp"
#include "apps/ddp_bench/contenders/nccl_contender.hpp"
#include "apps/ddp_bench/print.hpp"
#include "apps/ddp_bench/steps/command.hpp"
#include "apps/ddp_bench/store/rendezvous_load.hpp"
#include "apps/ddp_bench/store/store_load.hpp"
#include "rendezvous/base/file_limit.hpp"
#include "rendezvous/base/shared_library.hpp"

namespace {

using ddp::bench::Measured;
using ddp::bench::print;
using ddp::bench::Target;

struct StoreOptions {
  Target target{.host = "127.0.0.1"};
  std::vector<std::string> scenarios;
  double seconds = 2;
  int storm = 10000;
};

using Scenario = std::function<std::vector<Measured>(const StoreOptions&)>;

const std::map<std::string, Scenario>& scenarios() {
  static const std::map<std::string, Scenario> all = {
      {"storm", [](const StoreOptions& o) { return std::vector{storm(o.target, o.storm)}; }},
      {"closed",
       [](const StoreOptions& o) {
         std::vector<Measured> all_sizes;
         for (const int n : {1, 8, 64, 512}) all_sizes.push_back(closed_loop(o.target, n, o.seconds));
         return all_sizes;
       }},
      {"pipelined",
       [](const StoreOptions& o) {
         return std::vector{pipelined(o.target, 1, o.seconds), pipelined(o.target, 64, o.seconds)};
       }},
      {"multi_get",
       [](const StoreOptions& o) {
         return std::vector{multi_get(o.target, 512, 2000), multi_get(o.target, 10000, 50)};
       }},
      {"wait", [](const StoreOptions& o) { return std::vector{wait_for_many(o.target, 10000, 50)}; }},
      {"gloo", [](const StoreOptions& o) { return std::vector{gloo_init(o.target, 128)}; }},
      {"big",
       [](const StoreOptions& o) {
         return std::vector{big_values(o.target, 64 << 10, 1000), big_values(o.target, 8 << 20, 20)};
       }},
      {"keys", [](const StoreOptions& o) { return std::vector{many_keys(o.target, 200000)}; }},
  };
  return all;
}

void print_measured(const Measured& m) {
  const nlohmann::ordered_json line = {
      {"scenario", m.scenario},   {"operations", m.operations},         {"seconds", m.seconds},
      {"server_us", m.server_us}, {"server_user_us", m.server_user_us}, {"median_us", m.median_us},
      {"p99_us", m.p99_us},       {"resident_bytes", m.resident_bytes},
  };
  print(line);
}

void bench_store(const StoreOptions& options) {
  ddp::rendezvous::raise_file_limit();
  for (const std::string& name : options.scenarios) {
    for (const Measured& measured : scenarios().at(name)(options)) print_measured(measured);
  }
}

struct RendezvousOptions {
  int nodes = 4000;
  double beat = 5;
  std::string ddprun = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "ddprun";
};

void bench_rendezvous(const RendezvousOptions& options) {
  ddp::rendezvous::raise_file_limit();
  const ddp::bench::RendezvousPlan plan{options.ddprun, options.nodes, options.beat};
  ddp::bench::rendezvous(plan, [](const ddp::bench::RendezvousStep& step) {
    print({
        {"step", step.step},
        {"nodes", step.nodes},
        {"messages", step.messages},
        {"seconds", step.seconds},
        {"coordinator_cpu_s", step.coordinator_cpu},
        {"median_ms", step.median_ms},
        {"resident_mb", step.resident_mb},
    });
  });
}

struct CollectiveOptions {
  ddp::bench::CollectivePlan plan;
  std::vector<std::string> contenders = {"libddp", "gloo"};
  std::string backend = "ddp";
};

decltype(&ddp::bench::ddp_bench_gloo_contender) open_gloo() {
  const ddp::rendezvous::SharedLibrary module("plain Gloo", {ddp::bench::kGlooModule},
                                              "build the target ddp_bench_gloo");
  decltype(&ddp::bench::ddp_bench_gloo_contender) make = nullptr;
  module.find(ddp::bench::kGlooContender, make);
  return make;
}

void bench_collectives(const CollectiveOptions& options) {
  if (options.contenders.front() == "memory") throw std::invalid_argument("--contenders: memory cannot be the first");
  if (options.contenders.front() == "gloo") open_gloo();  // before libddp does
  const ddp::Session session = ddp::init_process_group({.backend = options.backend});
  const ddp::Store store = session.store();
  std::vector<std::unique_ptr<ddp::bench::Contender>> contenders;
  for (const std::string& name : options.contenders) {
    if (name == "gloo") {
      contenders.emplace_back(open_gloo()(&store, session.rank(), session.world_size()));
    } else if (name == "libddp_in_place") {
      contenders.push_back(std::make_unique<ddp::bench::LibddpInPlaceContender>(session.world()));
    } else if (name == "memory") {
      contenders.push_back(std::make_unique<ddp::bench::MemoryContender>(*contenders.front()));
    } else {
      const auto calling = name == "libddp" ? ddp::bench::Calling::Blocking : ddp::bench::Calling::Asynchronous;
      contenders.push_back(std::make_unique<ddp::bench::LibddpContender>(session.world(), calling));
    }
  }
  std::vector<ddp::bench::Contender*> in_turn;
  for (const auto& contender : contenders) in_turn.push_back(contender.get());
  ddp::bench::measure_collectives(in_turn, options.plan, ddp::bench::print_figures);
}

struct NcclOptions {
  ddp::bench::CollectivePlan plan;
  bool counts = false;
};

// Prints how many GPUs there are, or why there is none.
void print_gpus() {
  nlohmann::ordered_json line = {{"gpus", 0}};
  try {
    line["gpus"] = ddp::collectives::CudaDevice::count(ddp::collectives::cuda_api());
  } catch (const std::exception& error) {
    line["why"] = error.what();
  }
  print(line);
}

void bench_nccl(const NcclOptions& options) {
  if (options.counts) return print_gpus();
  const ddp::Session session = ddp::init_process_group({.backend = "cpu:gloo,cuda:nccl"});
  const int index = session.local_rank();
  const ddp::bench::DeviceStream gpu(index);
  const ddp::StreamGuard current(gpu.stream, index);
  ddp::bench::LibddpContender ranks(session.world(), ddp::bench::Calling::Blocking);
  ddp::bench::LibddpContender libddp(session.world(), ddp::bench::Calling::Blocking, {ddp::DeviceKind::Cuda, index});
  ddp::bench::NcclContender nccl(session.world(), gpu.stream);
  ddp::bench::measure_on_device(ranks, {&libddp, &nccl}, options.plan, gpu, ddp::bench::print_figures);
}

// ---- The subcommands; each runs its benchmark when its line has been read ----

void declare_store(CLI::App& app, StoreOptions& options) {
  CLI::App* const store = app.add_subcommand("store", "Clients of a c10d store that listens on this machine");
  store->option_defaults()->always_capture_default();
  std::vector<std::string> names;
  for (const auto& [name, scenario] : scenarios()) names.push_back(name);
  store->add_option("--host", options.target.host, "Numeric IPv4 address of the store");
  store->add_option("--port", options.target.port, "Its port")->required();
  store->add_option("--pid", options.target.server, "Its process, whose CPU time is measured")->required();
  store->add_option("--seconds", options.seconds, "Duration of each loop");
  store->add_option("--storm", options.storm, "Connections of the storm");
  store->add_option("scenarios", options.scenarios, "Scenarios to run; all if none is named")
      ->check(CLI::IsMember(names));
  store->callback([&options, names] {
    if (options.scenarios.empty()) options.scenarios = names;
    bench_store(options);
  });
}

void declare_rendezvous(CLI::App& app, RendezvousOptions& options) {
  const char* const what = "Agents of many nodes, for one ddprun that coordinates them";
  CLI::App* const rendezvous = app.add_subcommand("rendezvous", what);
  rendezvous->option_defaults()->always_capture_default();
  rendezvous->add_option("--nodes", options.nodes, "Nodes of the job")->check(CLI::Range(2, 100000));
  rendezvous->add_option("--beat", options.beat, "Seconds of heartbeats")->check(CLI::Range(0, 3600));
  rendezvous->add_option("--ddprun", options.ddprun, "The ddprun to measure");
  rendezvous->callback([&options] { bench_rendezvous(options); });
}

void declare_collectives(CLI::App& app, CollectiveOptions& options) {
  const char* const what = "A rank that ddprun started: libddp, plain Gloo, what memory allows, in turn";
  CLI::App* const collectives = app.add_subcommand("collectives", what);
  ddp::bench::declare_options(*collectives, options.plan);
  collectives
      ->add_option("--contenders", options.contenders,
                   "Libraries to measure in turn; if gloo is the first, it runs without libddp's corrections")
      ->check(CLI::IsMember({"libddp", "libddp_async", "libddp_in_place", "gloo", "memory"}));
  collectives->add_option("--backend", options.backend, "The backend that libddp uses");
  collectives->callback([&options] { bench_collectives(options); });
}

void declare_nccl(CLI::App& app, NcclOptions& options) {
  const char* const what = "A rank that ddprun started, with a GPU: libddp and NCCL itself in turn";
  CLI::App* const nccl = app.add_subcommand("nccl", what);
  ddp::bench::declare_options(*nccl, options.plan);
  nccl->add_flag("--count", options.counts, "Print how many GPUs there are; no job is needed");
  nccl->callback([&options] { bench_nccl(options); });
}

void declare_steps(CLI::App& app, ddp::bench::StepOptions& options) {
  CLI::App* const steps = app.add_subcommand("ddp", "A rank that ddprun started: training steps with and without DDP");
  ddp::bench::declare_options(*steps, options);
  steps->callback([&options] { ddp::bench::bench_steps(options); });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Puts load on what is measured and prints one JSON object a line.", "ddp_bench");
  app.require_subcommand(1);
  StoreOptions store;
  declare_store(app, store);
  RendezvousOptions rendezvous;
  declare_rendezvous(app, rendezvous);
  CollectiveOptions collectives;
  declare_collectives(app, collectives);
  NcclOptions nccl;
  declare_nccl(app, nccl);
  ddp::bench::StepOptions steps;
  declare_steps(app, steps);
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ddp_bench: %s\n", error.what());
    return 1;
  }
}
