// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/options/given_options.hpp"

#include <algorithm>
#include <cctype>
#include <climits>

namespace ddp::apps {

namespace {

// `what`: "a number of seconds, 0 or more".
template <typename T>
auto in_range(T low, T high, const char* what) {
  return [low, high, what](const std::string& text) -> std::string {
    T number{};
    const bool good = CLI::detail::lexical_cast(text, number) && number >= low && number <= high;
    return good ? "" : "'" + text + "' is not " + what;
  };
}
const auto kCount = in_range(0, INT_MAX, "a number, 0 or more");
const auto kSeconds = in_range(0, 1'000'000, "a number of seconds, 0 or more");

auto one_of(const std::vector<std::string>& choices) {
  return [choices](const std::string& text) -> std::string {
    if (std::find(choices.begin(), choices.end(), text) != choices.end()) return "";
    std::string list = choices.front();
    for (std::size_t i = 1; i < choices.size(); ++i) list += (i + 1 == choices.size() ? " or " : ", ") + choices[i];
    return "give " + list + ", not '" + text + "'";
  };
}

// "torch,numpy.linalg"
std::string module_list(const std::string& text) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '.' || c == ',' || c >= 0x80;
  };
  const bool good =
      std::all_of(text.begin(), text.end(), is_plain) && ("," + text + ",").find(",,") == std::string::npos;
  return good ? "" : "give names of modules with commas between, or auto, not '" + text + "'";
}

}  // namespace

void declare(Declaration& d, GivenOptions& given) {
  d.group("Workers");
  d.value("nproc-per-node", given.nproc_per_node, "N|cpu|gpu|auto",
          "Workers on this node: a number, one per CPU, one per GPU, or auto: one per GPU if there are any, else one "
          "per CPU.");
  d.value("gpus", given.gpus, "LIST",
          "GPUs of this job on this node, as for CUDA_VISIBLE_DEVICES. Default: what was inherited, else all.")
      .own();
  d.flag("virtual-local-rank", given.virtual_local_rank,
         "Show each worker its own GPU only, as device 0, and set LOCAL_RANK=0.");
  d.value(
       "numa-binding", given.numa_binding, "node|socket|exclusive|core-complex",
       "Run each worker on CPUs near its GPU: those of its NUMA node; of its socket; cores of the node that no other "
       "worker has; cores that share a cache. Without a GPU workers are spread over the nodes.")
      .check(one_of({"node", "socket", "exclusive", "core-complex"}))
      .variable("");
  d.flag("print-bindings", given.print_bindings, "Print which worker would run on which CPUs, and exit.")
      .variable("")
      .own();
  d.value("role", given.role, "NAME", "Role of the workers (ROLE_NAME).");

  d.group("Program");
  d.flag("module", given.module, "The program is a Python module: run `python -u -m program`.", 'm');
  d.flag("no-python", given.no_python, "Execute the program as it is, also if it looks like a Python script.");
  d.flag("run-path", given.run_path,
         "The program is a Python script, run by runpy.run_path: an exception is written to the error file, as with "
         "PyTorch's @record, and faulthandler is on. Goes before --no-python and --module.");
  d.value(
       "preload", given.preload, "MODULES|auto",
       "Import these Python modules once on each node, in a process from which all workers are forked, at each restart "
       "too; auto: those of the program's imports that are known to be safe. Where that cannot be, workers are started "
       "as without it, and ddprun says why.")
      .check(module_list)
      .own();
  d.value("preload-timeout", given.preload_timeout, "SECONDS",
          "How long these imports may take; then workers are started as without --preload.")
      .check(kSeconds)
      .own();
  d.flag_with_value(
       "legacy-local-rank", given.legacy_local_rank, "dash", "dash|underscore",
       "Give the program --local-rank=<local rank> before its other arguments, as `python -m "
       "torch.distributed.launch` of PyTorch 2 does; with =underscore --local_rank=<local rank>, as that of "
       "PyTorch 1 did.")
      .own();
  d.flag("use-env", given.use_env, "Accepted, for those who come from torch.distributed.launch: it is always so.")
      .variable("")
      .own();

  d.group("Output");
  d.value("redirects", given.logs.redirects, "STREAMS",
          "What goes into files instead of to the console: 1 stdout, 2 stderr, 3 both, 0 neither, of all workers; or "
          "of single ones, LOCAL_RANK:STREAMS,... The worker writes the file itself.",
          'r');
  d.value("tee", given.logs.tee, "STREAMS",
          "What goes into files and to the console, where each line has a prefix; as for --redirects.", 't');
  d.value("log-dir", given.logs.log_dir, "DIR",
          "Where files are: DIR/<run id>_<random>/attempt_<n>/<local rank>/stdout.log, stderr.log, and error.json for "
          "the program's own account of its failure. /dev/null: none, everything goes to the console. Default: a "
          "temporary folder, kept if it has logs.");
  d.value("log-line-prefix-template", given.logs.log_line_prefix_template, "TEXT",
          "Prefix of teed lines on the console, with ${role_name}, ${local_rank}, ${rank}, ${hostname}. "
          "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE sets the default, else it is [${role_name}${local_rank}]:");
  d.value("local-ranks-filter", given.logs.local_ranks_filter, "RANKS",
          "Local ranks whose output is on the console: 0,1,2. Files have it of all.");
  d.value("duplicate-stdout-filters", given.logs.duplicate_stdout_filters, "WORDS",
          "Teed lines that contain one of these words, with commas between, are also in attempt_<n>/"
          "filtered_stdout.log; a comma within a word is written twice.");
  d.value("duplicate-stderr-filters", given.logs.duplicate_stderr_filters, "WORDS",
          "The same of stderr, in filtered_stderr.log.");

  d.value("logs-specs", given.logs.logs_specs, "default",
          "Accepted; others are Python plug-ins, which a native launcher cannot load.")
      .variable("");

  d.value("stdin", given.stdin_reader, "RANK|all|none",
          "Who reads ddprun's stdin: the worker of this rank of the job, all, or none; the others find it empty. "
          "Default: rank 0 if it is a terminal, else all.")
      .own();

  d.group("Failure and shutdown");
  d.value("max-restarts", given.max_restarts, "N", "How often a failed job is started anew, all workers at once.")
      .check(kCount);
  d.value("shutdown-timeout", given.shutdown_timeout, "SECONDS",
          "From the signal that asks workers to end until SIGKILL. TORCH_ELASTIC_SHUTDOWN_TIMEOUT sets the default.")
      .check(kSeconds);
  d.value(
       "monitor-interval", given.monitor_interval, "SECONDS",
       "How often a worker of over 64 MiB that does not use libddp is looked at, whether it dies: the system tells of "
       "a death only when it has all of its memory back. Of others ddprun hears unasked.")
      .check(in_range(1e-9, 1e9, "a number of seconds above 0"));
  d.value("signals-to-handle", given.signals, "NAMES",
          "Signals to ddprun that end the job: forwarded once, then the grace period; a second one kills at once.");

  d.group("Nodes and rendezvous");
  d.value("nnodes", given.nodes.nnodes, "N|MIN:MAX",
          "Number of nodes. MIN:MAX, with c10d: elastic, the job runs with as many as there are. Default: 1.");
  d.value("node-rank", given.nodes.node_rank, "N", "Static: rank of this node, each exactly once; 0 coordinates.")
      .check(kCount);
  d.value("master-addr", given.nodes.master_addr, "ADDRESS",
          "Static: address of node 0, as all nodes can reach it (MASTER_ADDR). Default: 127.0.0.1.");
  d.value(
       "master-port", given.nodes.master_port, "PORT",
       "Static: port of node 0 (MASTER_PORT). Default: 29500; with one node any free one, so that jobs do not collide.")
      .check(in_range(0, 65535, "a port number"));
  d.flag("standalone", given.nodes.standalone, "One node, a free port: the default with one node.");
  d.value("rdzv-backend", given.nodes.rdzv_backend, "static|c10d",
          "How nodes get their ranks: static, from --node-rank; c10d, as they come.");
  d.value("rdzv-endpoint", given.nodes.rdzv_endpoint, "HOST[:PORT]",
          "c10d: the node that coordinates, the same on all nodes; port 29400 if none is given. Static: the same as "
          "--master-addr, --master-port.");
  d.value("rdzv-id", given.nodes.rdzv_id, "NAME",
          "The run's id (TORCHELASTIC_RUN_ID), the same on all nodes. Default: none; with one node a random one.");
  d.value("rdzv-conf", given.nodes.rdzv_conf, "K=V,...",
          "join_timeout (600 s) for the first nodes and for a replacement; last_call_timeout (30 s) for more than MIN; "
          "keep_alive_interval (5 s) times keep_alive_max_attempt (3) until a silent node counts as lost; is_host "
          "(true or false) if it cannot be found out.");
  d.value("local-addr", given.nodes.local_addr, "ADDRESS",
          "c10d: this node's address, for its workers if it coordinates.");
  d.value("make-secret", given.make_secret, "FILE",
          "Write a new secret into FILE and exit. Nodes with DDPRUN_SECRET_FILE=FILE let only each other in.")
      .variable("")
      .own();

  d.group("ddprun itself");
  d.value("log-level", given.log_level, "debug|info|warning|error", "What ddprun says of its own doings.")
      .variable("LOGLEVEL")
      .own();
  d.value("log-format", given.log_format, "text|json",
          "How it says it: lines for people, or one JSON object a line with time, level, node, round, rank, event and "
          "reason.")
      .own();
  d.value("event-log-handler", given.logs.event_log_handler, "null|console",
          "console: the records of --event-log-file on stderr. Other handlers are Python plug-ins.");
  d.value("event-log-file", given.logs.event_log_file, "FILE",
          "Append torchrun's event records, as JSON lines: when workers started, succeeded, failed "
          "or were terminated, and what became of the node.")
      .own();
  d.value("start-method", given.start_method, "spawn|fork|forkserver",
          "Accepted and without effect: workers are started with exec, or with --preload forked from a Python process.")
      .check(one_of({"spawn", "fork", "forkserver"}));
  d.value(
       "print-completion", given.print_completion, "bash|zsh|fish",
       "Print a completion script: ddprun --print-completion bash > ~/.local/share/bash-completion/completions/ddprun")
      .check(one_of({"bash", "zsh", "fish"}))
      .variable("");
  d.flag("print-man", given.print_man, "Print this page as a manual page: ddprun --print-man | man -l -")
      .variable("")
      .own();
  d.flag("version", given.version, "Print the version.").variable("").own();
  d.flag("help", given.help, "Print this page.", 'h').variable("");
}

}  // namespace ddp::apps
