// SPDX-License-Identifier: BSD-3-Clause
// Everything that the user decided, checked and resolved. apps/ddprun/options/options.cpp makes it from argv and PET_*,
// and the launcher works from nothing else. Plain values.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/config/log_config.hpp"
#include "launcher/config/program.hpp"
#include "launcher/placement/numa_binding.hpp"
#include "rendezvous/link/messages.hpp"
#include "rendezvous/membership/secret.hpp"

namespace ddp::launcher {

// Whose behaviour ddprun follows where it differs from torchrun in a way that scripts can see: torchrun's if it was
// called by that name. Then every failure has exit code 1, the program is run by Python unless --no-python is given, a
// failed job is also reported in torchrun's format, and the usage line is torchrun's.
enum class CompatibilityMode { Ddprun, Torchrun };

// The timeouts of --rdzv-conf, with their names there.
struct RendezvousTimeouts {
  std::chrono::milliseconds join = std::chrono::seconds(600);      // join_timeout
  std::chrono::milliseconds last_call = std::chrono::seconds(30);  // last_call_timeout
  std::chrono::milliseconds lost = std::chrono::seconds(15);       // keep_alive_interval * keep_alive_max_attempt
};

// Where the etcd of a job is, and what it takes to use it (--rdzv-backend etcd).
struct EtcdConfig {
  std::string endpoints;  // "10.0.0.1:2379,etcd2:2379", checked
  bool uses_tls = false;
  // PEM files. Empty: the system's authorities; no certificate of its own; the key is in the certificate's file.
  std::string authorities, certificate, key;
  std::string user, password_file;  // empty: none
};

// Where the page of the job is (--serve), and what proves that a visitor may see it.
struct PageConfig {
  std::string address;     // numeric
  std::uint16_t port = 0;  // 0: any free one
  std::string token_file;  // --serve-token; empty: none, and the address is loopback
};

// What happens when the workers make no progress for --hang-timeout.
enum class OnHang { Tell, Restart, Stop };

// Which workers read ddprun's own stdin (--stdin); the stdin of the others is empty. Ranks are those of the job, so the
// node with that rank reads.
struct StdinReader {
  enum class Who { Default, All, None, Rank };
  Who who = Who::Default;
  int rank = 0;

  // What ddprun's stdin is. While ddprun is in the background of a shell, its terminal is for the shell and for the job
  // in the foreground.
  enum class Source { FileOrPipe, Terminal, TerminalOfOthers };

  // By default a terminal has one reader, rank 0, and a file or pipe is read by all, as with torchrun.
  bool reads(int worker_rank, Source source) const {
    if (source == Source::TerminalOfOthers) return false;
    if (who == Who::Default) return source == Source::FileOrPipe || worker_rank == 0;
    return who == Who::All || (who == Who::Rank && worker_rank == rank);
  }
};

// Shadow: workers keep a copy of their tensors, too, each a part.
enum class KeepMemory { No, Yes, Shadow };

// Signal by which the ddprun that a host was started with (launcher/hosts) says that the head is out of reach: this
// node ends, and the job may go on without it. No worker gets it.
inline constexpr int kHeadIsGone = SIGPWR;

// How a node of a job that --hosts has started reaches the head (launcher/hosts), which prints and writes for all
// nodes.
struct ToHead {
  std::function<void(int exit_code, const std::string& why)> cannot_begin;  // this node never runs a worker
  std::function<void(const std::string& json)> report;                      // the content of --report-file
};

struct LaunchConfig {
  CompatibilityMode compatibility = CompatibilityMode::Ddprun;
  int launcher_pid = 0;  // the process that the user started
  Program program;
  std::vector<std::string> program_args;  // as given; $local_rank is replaced per worker
  std::string preload;                    // modules that the warm parent imports, or "auto"; empty: no warm parent
  std::chrono::seconds preload_timeout{300};
  bool serve_gloo = false;  // --gloo=ddp: workers' torch.distributed gives the name "gloo" to the backend "ddp"
  KeepMemory keep_memory = KeepMemory::No;  // --keep-memory: the agent keeps memory of workers for their next processes

  int workers = 1;  // --nproc-per-node
  std::string role = "default";
  rendezvous::JobShape job;                                               // --rdzv-id, --nnodes, --max-restarts
  std::chrono::milliseconds shutdown_timeout = std::chrono::seconds(30);  // from the stop signal to SIGKILL
  std::chrono::milliseconds monitor_interval{4};                          // polling interval for large workers
  std::chrono::milliseconds stacks_within{500};  // --stacks-timeout, before workers are stopped; 0: none are taken
  std::chrono::milliseconds hang_timeout{0};     // --hang-timeout; 0: hangs are not looked for
  OnHang on_hang = OnHang::Tell;
  std::string trace_file;          // --trace; empty: none
  std::optional<PageConfig> page;  // --serve

  // The store and, with several nodes, the coordinator: at --master-addr if static, else at --rdzv-endpoint.
  std::string master_addr = "127.0.0.1";
  std::string endpoint_from;              // what said where the nodes meet: "--rdzv-endpoint"
  std::uint16_t master_port = 0;          // 0: any free one
  std::vector<std::uint16_t> next_ports;  // tried in turn if master_port is taken; only this job's coordinator answers
  std::string meeting_file;  // nodes meet in this file instead (--rdzv-conf store_type=file); empty: at master_addr
  std::optional<EtcdConfig> etcd;  // several nodes: the job's record is there, and any node may coordinate
  // Numeric; a store on this node listens on them. Empty: on those that master_addr and local_addr lead to.
  std::vector<std::string> store_addresses = {"127.0.0.1", "::1"};
  int node_rank = 0;                       // static
  int wanted_rank = -1;                    // c10d: --node-rank or the platform's; -1: neither
  std::map<std::string, int> host_places;  // c10d: --topology: hosts with neighbouring numbers are neighbours
  std::optional<bool> is_host;             // --rdzv-conf is_host; absent: determined from addresses
  std::string local_addr;                  // --local-addr; empty: not given
  bool workers_share_store = true;  // false: rank 0 hosts one for the workers (TORCH_DISABLE_SHARE_RDZV_TCP_STORE)
  RendezvousTimeouts timeouts;
  std::string secret = "auto";                      // --secret: what the nodes of a job prove to each other
  std::optional<rendezvous::Secret> agreed_secret;  // where secret is auto, and one program has started all nodes
  bool agreed_secret_first = false;                 // before the files that auto looks for
  bool is_told_elsewhere = false;                   // the first node says on the same console how the job fares
  std::optional<ToHead> to_head;                    // absent: no head has started this node
  bool any_user = false;                            // the job's port is for all users of this machine

  std::optional<std::string> gpus;  // --gpus, as for CUDA_VISIBLE_DEVICES
  bool virtual_local_rank = false;
  std::vector<WorkerBinding> bindings;  // --numa-binding, by local rank; empty: not bound
  StdinReader stdin_reader;
  std::string timer_file;  // FIFO for the workers' timers (TORCHELASTIC_TIMER_FILE); empty: none is made
  LogConfig logs;
  std::vector<int> stop_signals;  // --signals-to-handle: these end the job
  std::string stop_signal_names;  // as text for the workers
};

}  // namespace ddp::launcher
