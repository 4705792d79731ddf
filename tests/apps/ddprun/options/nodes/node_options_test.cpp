// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/options/nodes/node_options.hpp"

#include <catch2/catch.hpp>
#include <map>

#include "apps/ddprun/options/nodes/platform_options.hpp"
#include "apps/ddprun/options/usage_error.hpp"

using namespace ddp::apps;
using ddp::launcher::LaunchConfig;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

struct Resolved {
  LaunchConfig config;
  std::string warnings;
};

Resolved resolve(const NodeOptions& options) {
  Resolved resolved;
  resolve_nodes(
      options, [&](const std::string& line) { resolved.warnings += line + "\n"; }, resolved.config);
  return resolved;
}

std::string fill(NodeOptions& options, const std::map<std::string, std::string>& environment) {
  const FromPlatform taken =
      fill_from_platform(options, {.variable =
                                       [&](const char* name) {
                                         const auto found = environment.find(name);
                                         return found == environment.end() ? std::string() : found->second;
                                       },
                                   .file = [](const std::string&) { return std::string(); },
                                   .host = "here"});
  return taken.platform.empty() ? "" : "from " + taken.platform + ":" + taken.options;
}

std::map<std::string, std::string> slurm(const std::string& nodes) {
  return {{"SLURM_STEP_NUM_NODES", "3"}, {"SLURM_STEP_NUM_TASKS", "3"}, {"SLURM_NODEID", "2"},
          {"SLURM_JOB_ID", "1000"},      {"SLURM_STEP_ID", "2"},        {"SLURM_STEP_NODELIST", nodes}};
}

}  // namespace

TEST_CASE("nodes: one is the default, with an id of its own and loopback only", "[ddprun][unit]") {
  const LaunchConfig config = resolve({}).config;
  CHECK(config.job.max_nodes == 1);
  CHECK(config.job.id.size() == 16);
  CHECK(config.master_port == 0);
  CHECK(config.store_addresses == std::vector<std::string>{"127.0.0.1", "::1"});
}

TEST_CASE("nodes: with one node a master address that is not this machine's gets a warning and is not used",
          "[ddprun][unit]") {
  for (const char* elsewhere : {"no-such-name.invalid", "192.0.2.7"}) {
    CAPTURE(elsewhere);
    const Resolved resolved = resolve({.master_addr = elsewhere, .master_port = 4000});
    CHECK(resolved.config.master_addr == "127.0.0.1");
    CHECK(resolved.config.master_port == 4000);
    CHECK(resolved.warnings.starts_with(std::string("--master-addr ") + elsewhere + ": "));
  }
  NodeOptions endpoint;
  endpoint.rdzv_endpoint = "no-such-name.invalid:4001";
  const Resolved resolved = resolve(endpoint);
  CHECK((resolved.config.master_addr == "127.0.0.1" && resolved.config.master_port == 4001));
  CHECK(resolved.warnings.starts_with("--rdzv-endpoint no-such-name.invalid: "));
  const Resolved own = resolve({.master_addr = "localhost"});
  CHECK((own.config.master_addr == "localhost" && own.warnings.empty()));
}

TEST_CASE("nodes: with one node an endpoint that means nothing is refused too, except with --standalone",
          "[ddprun][unit]") {
  for (const char* endpoint : {"localhost:99999", ":abc", "bad host:1"}) {
    CAPTURE(endpoint);
    CHECK_THROWS_AS(resolve({.rdzv_backend = "c10d", .rdzv_endpoint = endpoint}), UsageError);
    CHECK_NOTHROW(resolve({.standalone = true, .rdzv_backend = "c10d", .rdzv_endpoint = endpoint}));
  }
  CHECK_NOTHROW(resolve({.rdzv_backend = "c10d", .rdzv_endpoint = "localhost:0"}));
}

TEST_CASE("nodes: the run's id is torchrun's: as given, else none, or a new one where no endpoint was given",
          "[ddprun][unit]") {
  CHECK(resolve({.rdzv_id = "j"}).config.job.id == "j");
  CHECK(resolve({.standalone = true, .rdzv_backend = "c10d"}).config.job.id.size() == 16);
  CHECK(resolve({.master_addr = "localhost"}).config.job.id.size() == 16);
  CHECK(resolve({.master_port = 0}).config.job.id == "none");
  CHECK(resolve({.rdzv_endpoint = "localhost:0"}).config.job.id == "none");
  CHECK(resolve({.rdzv_backend = "c10d"}).config.job.id == "none");
}

TEST_CASE("nodes: rank 0 hosts the workers' store where torchrun's would be shared and may not be", "[ddprun][unit]") {
  CHECK(resolve({}).config.workers_share_store);
  CHECK_FALSE(resolve({.shares_store = false}).config.workers_share_store);
  CHECK_FALSE(resolve({.nnodes = "2", .rdzv_backend = "c10d", .shares_store = false}).config.workers_share_store);
  CHECK(resolve({.master_port = 4000, .shares_store = false}).config.workers_share_store);
  CHECK(resolve({.nnodes = "2", .shares_store = false}).config.workers_share_store);
}

TEST_CASE("nodes: static takes ranks as given, and torchrun's port and id", "[ddprun][unit]") {
  const LaunchConfig config = resolve({.nnodes = "2:4", .node_rank = 3, .master_addr = "[fd00::1]"}).config;
  CHECK(config.job.min_nodes == 4);
  CHECK(config.job.max_nodes == 4);
  CHECK(config.job.node_ranks_given);
  CHECK(config.job.id == "none");
  CHECK(config.node_rank == 3);
  CHECK(config.master_addr == "fd00::1");
  CHECK(config.master_port == 29500);
  CHECK(resolve({.nnodes = "2", .rdzv_endpoint = "[fd00::1]:4000"}).config.master_port == 4000);
}

TEST_CASE("nodes: c10d may be elastic, and its endpoint is the coordinator's", "[ddprun][unit]") {
  const Resolved resolved =
      resolve({.nnodes = "1:4", .node_rank = 2, .rdzv_backend = "c10d", .rdzv_endpoint = "h", .rdzv_id = "j"});
  CHECK(resolved.config.job.min_nodes == 1);
  CHECK(resolved.config.job.max_nodes == 4);
  CHECK(resolved.config.master_addr == "h");
  CHECK(resolved.config.master_port == 29400);
  CHECK(resolved.config.job.id == "j");
  CHECK(resolved.config.wanted_rank == 2);
  CHECK(resolved.warnings.empty());
}

TEST_CASE("nodes: torchrun's keys of --rdzv-conf have their meaning, and unknown ones a warning", "[ddprun][unit]") {
  NodeOptions options{.nnodes = "2", .rdzv_backend = "c10d"};
  options.rdzv_conf =
      "'join_timeout=5,last_call_timeout=1.5,keep_alive_interval=2,keep_alive_max_attempt=4,is_host=Yes,use_libuv=0,"
      "color=red'";
  const Resolved resolved = resolve(options);
  CHECK(resolved.config.timeouts.join == seconds(5));
  CHECK(resolved.config.timeouts.last_call == milliseconds(1500));
  CHECK(resolved.config.timeouts.lost == seconds(8));
  CHECK(resolved.config.is_host == true);
  CHECK(resolved.warnings == "--rdzv-conf: 'color' is not known here and has no effect\n");
  options.rdzv_backend = "static";
  options.rdzv_conf = "timeout=7,rank=1";
  CHECK(resolve(options).config.timeouts.join == seconds(7));
  CHECK(resolve(options).config.node_rank == 1);
  for (const char* bad :
       {"join_timeout", "=5", "join_timeout=-1", "is_host=maybe", "keep_alive_interval=0.01", "rank=x",
        "read_timeout=0", "close_timeout=soon", "cas_backoff_max_seconds=-1", "store_type=none"}) {
    CAPTURE(bad);
    options.rdzv_conf = bad;
    CHECK_THROWS_AS(resolve(options), UsageError);
  }
}

TEST_CASE("nodes: white space around numbers, endpoints and the entries of a list does not count", "[ddprun][unit]") {
  NodeOptions options{.nnodes = "1:2\n", .rdzv_backend = "c10d", .rdzv_endpoint = " h:29471 "};
  options.rdzv_conf = " join_timeout = 5, last_call_timeout=1\n";
  const Resolved resolved = resolve(options);
  CHECK(resolved.config.job.max_nodes == 2);
  CHECK(resolved.config.master_addr == "h");
  CHECK(resolved.config.master_port == 29471);
  CHECK(resolved.config.timeouts.join == seconds(5));
  CHECK(resolved.config.timeouts.last_call == seconds(1));
  CHECK(resolved.warnings.empty());
}

TEST_CASE("nodes: an id of bytes that are no text is refused, since messages could not hold it", "[ddprun][unit]") {
  CHECK(resolve({.nnodes = "2", .rdzv_backend = "c10d", .rdzv_id = "\u00e9"}).config.job.id == "\u00e9");
  for (const char* id : {"x\xe9", "a\nb"}) {
    CHECK_THROWS_WITH(resolve({.nnodes = "2", .rdzv_backend = "c10d", .rdzv_id = id}),
                      Catch::Contains("some bytes of this id are no printable UTF-8 text"));
  }
}

TEST_CASE("nodes: with store_type=file the endpoint is the path of a file, and no port is needed", "[ddprun][unit]") {
  NodeOptions options{.nnodes = "2", .rdzv_backend = "c10d", .rdzv_endpoint = "/shared/folder: of mine/store"};
  options.rdzv_conf = "store_type=file";
  const Resolved resolved = resolve(options);
  CHECK(resolved.config.meeting_file == "/shared/folder: of mine/store");
  CHECK(resolved.config.master_addr.empty());
  CHECK(resolved.config.store_addresses == std::vector<std::string>{"0.0.0.0", "::"});
  CHECK(resolved.warnings.empty());
  options.nnodes = "1";
  CHECK(resolve(options).warnings.empty());
  CHECK(resolve(options).config.meeting_file.empty());
  options = {.nnodes = "2", .rdzv_backend = "c10d"};
  options.rdzv_conf = "store_type=file";
  CHECK_THROWS_WITH(resolve(options), Catch::Contains("give the path of a file in a folder that all nodes share"));
  CHECK(fill(options, slurm("a,b,c")) == "from Slurm: --rdzv-id slurm-1000.2");
  CHECK(options.rdzv_endpoint.empty());
  options = {.nnodes = "2"};
  options.rdzv_conf = "store_type=file";
  CHECK(resolve(options).warnings == "--rdzv-conf store_type=file has no effect with --rdzv-backend static\n");
  options = {.nnodes = "2", .rdzv_backend = "c10d", .rdzv_endpoint = "a"};
  options.rdzv_conf = "store_type=tcp";
  CHECK(resolve(options).warnings.empty());
}

TEST_CASE("nodes: impossible combinations are usage errors", "[ddprun][unit]") {
  CHECK_THROWS_AS(resolve({.nnodes = "0"}), UsageError);
  CHECK_THROWS_AS(resolve({.nnodes = "2:1"}), UsageError);
  CHECK_THROWS_AS(resolve({.nnodes = "1:2:3"}), UsageError);
  CHECK_THROWS_AS(resolve({.node_rank = 1}), UsageError);
  CHECK_THROWS_AS(resolve({.nnodes = "2", .node_rank = 2}), UsageError);
  CHECK_THROWS_AS(resolve({.nnodes = "2", .standalone = true}), UsageError);
  CHECK_THROWS_AS(resolve({.nnodes = "2", .master_port = 0}), UsageError);
  CHECK_THROWS_AS(resolve({.nnodes = "2", .rdzv_backend = "etcd"}), UsageError);
  CHECK_THROWS_AS(resolve({.nnodes = "2", .rdzv_backend = "etcd-v3"}), UsageError);
  for (const char* endpoint : {"fd00::1:80", "two words", "http://node0:29400", ":29400", "node0:"}) {
    CAPTURE(endpoint);
    CHECK_THROWS_AS(resolve({.nnodes = "2", .rdzv_backend = "c10d", .rdzv_endpoint = endpoint}), UsageError);
  }
}

TEST_CASE("nodes: a step that srun started with one task per node is a job of these nodes", "[ddprun][unit]") {
  NodeOptions options;
  CHECK(fill(options, slurm("gpu[07-09,12],login")) ==
        "from Slurm: --nnodes 3 --node-rank 2 --master-addr gpu07 --master-port 24002 --rdzv-id slurm-1000.2");
  CHECK(options.nnodes == "3");
  CHECK(options.node_rank == 2);
  CHECK(options.master_addr == "gpu07");
  NodeOptions elastic{.nnodes = "1:3", .rdzv_backend = "c10d"};
  CHECK(fill(elastic, slurm("a-1,a-2")) == "from Slurm: --rdzv-endpoint a-1:24002 --rdzv-id slurm-1000.2");
  NodeOptions given{.nnodes = "3", .node_rank = 0, .master_addr = "x", .rdzv_id = "mine"};
  CHECK(fill(given, slurm("a,b")).empty());
  NodeOptions several_tasks;
  auto environment = slurm("a,b");
  environment["SLURM_STEP_NUM_TASKS"] = "24";
  CHECK_THROWS_AS(fill(several_tasks, environment), UsageError);
  CHECK_FALSE(several_tasks.nnodes);
  NodeOptions shell;  // salloc, without srun
  CHECK(fill(shell, {{"SLURM_NNODES", "3"}, {"SLURM_NODEID", "0"}}).empty());
}

TEST_CASE("nodes: a step of Slurm has an id and ports of its own, so that steps that share a node stay apart",
          "[ddprun][unit]") {
  NodeOptions ranked;
  fill(ranked, slurm("a,b,c"));
  const LaunchConfig config = resolve(ranked).config;
  CHECK(config.job.id == "slurm-1000.2");
  CHECK(config.master_port == 24002);
  CHECK(config.next_ports.size() == 7);
  CHECK(config.next_ports.front() == 25513);

  NodeOptions elastic{.nnodes = "1:3", .rdzv_backend = "c10d"};
  auto first = slurm("a,b,c");
  first["SLURM_NODEID"] = "0";
  fill(elastic, first);
  CHECK(resolve(elastic).config.is_host == true);  // nobody else: the port decides nothing
  CHECK(resolve(elastic).config.next_ports == config.next_ports);
  NodeOptions other{.nnodes = "1:3", .rdzv_backend = "c10d"};
  fill(other, slurm("a,b,c"));
  CHECK(resolve(other).config.is_host == false);
}

TEST_CASE("nodes: what the user gives stays, also under Slurm", "[ddprun][unit]") {
  // The usual lines of a batch script.
  NodeOptions script{.nnodes = "3", .rdzv_backend = "c10d", .rdzv_endpoint = "a:29500"};
  CHECK(fill(script, slurm("a,b,c")) == "from Slurm: --rdzv-id slurm-1000.2");
  CHECK(resolve(script).config.master_port == 29500);
  CHECK(resolve(script).config.next_ports.empty());
  CHECK_FALSE(resolve(script).config.is_host);
  NodeOptions port{.master_port = 29500};
  fill(port, slurm("a,b,c"));
  CHECK(resolve(port).config.master_port == 29500);
  CHECK(resolve(port).config.next_ports.empty());
  NodeOptions id{.rdzv_id = "mine"};
  CHECK(fill(id, slurm("a,b,c")).find("--rdzv-id") == std::string::npos);
  CHECK(id.rdzv_id == "mine");
  // More nodes than the step has: the others know another step.
  NodeOptions larger{.nnodes = "1:8", .rdzv_backend = "c10d", .rdzv_endpoint = "login:29500"};
  CHECK(fill(larger, slurm("a,b,c")).empty());
  CHECK(resolve(larger).config.job.id == "none");
}

TEST_CASE("nodes: a pod of an indexed job has its index as node rank", "[ddprun][unit]") {
  NodeOptions options{.nnodes = "4"};
  CHECK(fill(options, {{"JOB_COMPLETION_INDEX", "3"}}) == "from Kubernetes (JOB_COMPLETION_INDEX): --node-rank 3");
  CHECK(options.node_rank == 3);
  NodeOptions one;
  CHECK(fill(one, {{"JOB_COMPLETION_INDEX", "3"}}).empty());
}

TEST_CASE("etcd: endpoint, id and files are taken by the names of both of torchrun's back ends", "[ddprun][unit]") {
  NodeOptions options{.nnodes = "1:4", .rdzv_backend = "etcd", .rdzv_endpoint = "etcd1,10.0.0.2:4001"};
  options.rdzv_id = "job";
  options.rdzv_conf = "timeout=60,last_call_timeout=2";
  Resolved plain = resolve(options);
  CHECK(plain.warnings.empty());
  CHECK(plain.config.etcd->endpoints == "etcd1,10.0.0.2:4001");
  CHECK_FALSE(plain.config.etcd->uses_tls);
  CHECK(plain.config.timeouts.join == seconds(60));
  CHECK(plain.config.store_addresses == std::vector<std::string>{"0.0.0.0", "::"});
  for (const char* conf : {"protocol=https,cacert=ca.pem,cert=c.pem,key=k.pem",
                           "protocol=https,ca_cert=ca.pem,ssl_cert=c.pem,ssl_cert_key=k.pem"}) {
    options.rdzv_conf = conf;
    const Resolved tls = resolve(options);
    CHECK(tls.warnings.empty());
    CHECK(tls.config.etcd->uses_tls);
    CHECK(tls.config.etcd->authorities + tls.config.etcd->certificate + tls.config.etcd->key == "ca.pemc.pemk.pem");
  }
  options.nnodes = "1";
  CHECK_FALSE(resolve(options).config.etcd);  // one node needs nobody
}

TEST_CASE("etcd: an address may have its protocol before it, as for etcdctl", "[ddprun][unit]") {
  NodeOptions options{.nnodes = "2", .rdzv_backend = "etcd", .rdzv_id = "job"};
  options.rdzv_endpoint = "http://etcd1:2379/,http://[fd00::1]:4001";
  CHECK(resolve(options).config.etcd->endpoints == "etcd1:2379,[fd00::1]:4001");
  CHECK_FALSE(resolve(options).config.etcd->uses_tls);
  options.rdzv_endpoint = "https://etcd1,etcd2";
  options.rdzv_conf = "cacert=ca.pem";
  CHECK(resolve(options).config.etcd->endpoints == "etcd1,etcd2");
  CHECK(resolve(options).config.etcd->uses_tls);
  options.rdzv_conf = "protocol=http";
  CHECK_THROWS_WITH(resolve(options), "--rdzv-endpoint says https:// and --rdzv-conf protocol=http; give one of them");
}

TEST_CASE("etcd: what cannot be meant is a usage error", "[ddprun][unit]") {
  const NodeOptions right{.nnodes = "2", .rdzv_backend = "etcd-v2", .rdzv_endpoint = "etcd1", .rdzv_id = "job"};
  CHECK(resolve(right).config.etcd);
  NodeOptions wrong = right;
  wrong.rdzv_id = "";
  CHECK_THROWS_AS(resolve(wrong), UsageError);
  for (const char* endpoint : {"", "etcd1,", "ftp://etcd1", "http://", "http://etcd1,https://etcd2", "http://etcd1,",
                               "etcd1:0", "etcd1:65536"}) {
    CAPTURE(endpoint);
    wrong = right;
    wrong.rdzv_endpoint = endpoint;
    CHECK_THROWS_AS(resolve(wrong), UsageError);
  }
  for (const char* conf : {"protocol=ftp", "cacert=ca.pem", "protocol=http,cert=c.pem", "protocol=https,key=k.pem",
                           "user=ada,password=secret", "user=ada", "password_file=/dev/null",
                           "user=ada,password_file=/nowhere", "user=ada,password_file=/etc/passwd"}) {
    CAPTURE(conf);
    wrong = right;
    wrong.rdzv_conf = conf;
    CHECK_THROWS_AS(resolve(wrong), UsageError);
  }
}

TEST_CASE("etcd: what a platform says of addresses is not taken for etcd's", "[ddprun][unit]") {
  NodeOptions options{.rdzv_backend = "etcd"};
  CHECK(fill(options, slurm("node[1-3]")) == "from Slurm: --nnodes 3 --rdzv-id slurm-1000.2");
  CHECK(options.rdzv_endpoint.empty());
  NodeOptions pod{.nnodes = "2", .rdzv_backend = "etcd"};
  fill(pod, {{"MASTER_ADDR", "pod0"}, {"MASTER_PORT", "1000"}});
  CHECK(pod.rdzv_endpoint.empty());
}
