// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/options/given_options.hpp"

#include <algorithm>
#include <cctype>
#include <climits>
#include <cmath>

namespace ddp::apps {

namespace {

// Returns a check for a number from low to high; `what` describes it: "a number, 0 or more".
template <typename T>
auto in_range(T low, T high, const char* what) {
  return [low, high, what](const std::string& text) -> std::string {
    const auto number = rendezvous::parse_number<T>(text);
    const bool good = number && *number >= low && *number <= high;
    return good ? "" : "'" + text + "' is not " + what;
  };
}
const auto kCount = in_range(0, INT_MAX, "a number, 0 or more");

// Returns a check for a time of low to high seconds; `range` describes them: "0 or more".
auto time_in_range(double low, double high, const std::string& range) {
  return [=](const std::string& text) -> std::string {
    const auto seconds = seconds_from(text);
    if (seconds && *seconds >= low && *seconds <= high) return "";
    return "'" + text + "' is not a time, " + range + "; give seconds, or a unit as in 500ms, 90s, 5m or 2h";
  };
}
const auto kTime = time_in_range(0, 1e6, "0 or more");

std::string whole_seconds(const std::string& text) {
  const std::string wrong = kTime(text);
  if (!wrong.empty()) return wrong;
  const double seconds = *seconds_from(text);
  return seconds == std::floor(seconds) ? "" : "'" + text + "': give whole seconds";
}

auto one_of(const std::vector<std::string>& choices) {
  return [choices](const std::string& text) -> std::string {
    if (std::find(choices.begin(), choices.end(), text) != choices.end()) return "";
    std::string list = choices.front();
    for (std::size_t i = 1; i < choices.size(); ++i) list += (i + 1 == choices.size() ? " or " : ", ") + choices[i];
    return "give " + list + ", not '" + text + "'";
  };
}

// Checks a list of modules: "torch,numpy.linalg".
std::string module_list(const std::string& text) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '.' || c == ',' || c >= 0x80;
  };
  const bool good =
      std::all_of(text.begin(), text.end(), is_plain) && ("," + text + ",").find(",,") == std::string::npos;
  return good ? "" : "give names of modules with commas between, or auto, not '" + text + "'";
}

void declare_workers(Declaration& d, GivenOptions& given) {
  d.group("Workers");
  d.value(
      "nproc-per-node", given.nproc_per_node, "N|cpu|gpu|xpu|npu|auto",
      "Number of workers on this node: a number, cpu for one per CPU, gpu for one per GPU (NVIDIA's, AMD's, Intel's "
      "or Ascend's), xpu for one per Intel GPU, npu for one per Ascend device, or auto for one per GPU if there are "
      "any, else one per CPU. The user's PyTorch is asked about other kinds of device, by their name there. Default: "
      "1, or the number of GPUs of a node if a platform says it together with the number of nodes.");
  d.value("gpus", given.gpus, "LIST",
          "GPUs that the job uses on this node, in the syntax of CUDA_VISIBLE_DEVICES. Default: CUDA_VISIBLE_DEVICES "
          "if it is set, else all GPUs. For GPUs that are not NVIDIA's: HIP_VISIBLE_DEVICES, ZE_AFFINITY_MASK or "
          "ASCEND_RT_VISIBLE_DEVICES.")
      .ddprun_only();
  d.flag("virtual-local-rank", given.virtual_local_rank,
         "Show each worker only its own GPU, as device 0, and set LOCAL_RANK=0.");
  d.value("numa-binding", given.numa_binding, "node|socket|exclusive|core-complex",
          "Bind each worker to CPUs near its GPU: node, the CPUs of the GPU's NUMA node; socket, those of its socket; "
          "exclusive, cores of the node that no other worker has; core-complex, cores of the node that share a cache. "
          "Without GPUs, workers are spread over the NUMA nodes.")
      .check(one_of({"node", "socket", "exclusive", "core-complex"}))
      .variable("");
  d.value("role", given.role, "NAME", "Role of the workers (ROLE_NAME).");
}

void declare_program(Declaration& d, GivenOptions& given) {
  d.group("Program");
  d.flag("module", given.module, "Run the program as a Python module: `python -u -m program`.", 'm');
  d.flag("no-python", given.no_python, "Execute the program directly, even if it looks like a Python script.");
  d.flag(
      "run-path", given.run_path,
      "Run the program with Python's runpy.run_path. An exception is written to the error file, as PyTorch's @record "
      "does, and faulthandler is enabled. Takes precedence over --no-python and --module.");
  d.value("preload", given.preload, "MODULES|auto",
          "Import these Python modules once on each node, in a process from which the workers are forked, also after a "
          "restart. auto chooses those of the program's imports that are known to be safe. If forking is not possible, "
          "workers are started without it, and ddprun logs the reason.")
      .check(module_list)
      .ddprun_only();
  d.time("preload-timeout", given.preload_timeout,
         "Maximum time for the imports of --preload; after it, workers are started without it.")
      .check(whole_seconds)
      .ddprun_only();
  d.value("gloo", given.gloo, "torch|ddp",
          "What serves scripts that ask torch.distributed for the backend gloo: torch, PyTorch's own Gloo, or ddp, "
          "libddp's backend of that name, with Gloo for what it does not do. ddp needs PyTorch 2.14 or newer and the "
          "Python package ddprun in the workers' Python; the job says in a line that it is used.")
      .check(one_of({"torch", "ddp"}))
      .ddprun_only();
  d.flag_with_value(
       "keep-memory", given.keep_memory, "1", "shadow",
       "Keep memory of workers that ask for it (ddp::Kept of libddp) while the job runs. After a restart the new "
       "processes find their model and its optimizer's state there and go on after the last complete step. With "
       "=shadow each of a node's N workers also keeps 1/N of a copy, and a whole one of what no other rank has (ZeRO, "
       "FSDP), so that no step is lost if all are killed within one update. The memory is freed with the job, however "
       "it ends.")
      .check([](const std::string& text) {
        return text == "shadow" || flag_value(text) ? "" : "give shadow or nothing, not '" + text + "'";
      })
      .ddprun_only();
  d.flag_with_value(
       "legacy-local-rank", given.legacy_local_rank, "dash", "dash|underscore",
       "Pass --local-rank=<local rank> to the program before its other arguments, as `python -m "
       "torch.distributed.launch` does in PyTorch 2. With =underscore pass --local_rank=<local rank>, as PyTorch 1 "
       "did.")
      .ddprun_only();
  d.flag("use-env", given.use_env,
         "Accepted for compatibility with torch.distributed.launch; LOCAL_RANK is always set.")
      .variable("");
}

void declare_output(Declaration& d, GivenOptions& given) {
  d.group("Output");
  d.value("redirects", given.logs.redirects, "STREAMS",
          "Streams to write to files instead of the console: 1 stdout, 2 stderr, 3 both, 0 neither. One number is for "
          "all workers; LOCAL_RANK:STREAMS,... selects single workers. Each worker writes its file itself.",
          'r');
  d.value("tee", given.logs.tee, "STREAMS",
          "Streams to write to files and to the console, where each line gets a prefix. Same syntax as --redirects.",
          't');
  d.value("log-dir", given.logs.log_dir, "DIR",
          "Folder for log files: DIR/<run id>_<random>/attempt_<n>/<local rank>/stdout.log and stderr.log, and "
          "error.json, in which a program describes its failure. /dev/null writes no files and sends everything to the "
          "console. Default: a temporary folder, which is kept if it contains logs.");
  d.value("log-line-prefix-template", given.logs.log_line_prefix_template, "TEXT",
          "Prefix of teed lines on the console. May contain ${role_name}, ${local_rank}, ${rank} and ${hostname}. "
          "Default: TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE if it is set, else [${role_name}${local_rank}]:");
  d.value("local-ranks-filter", given.logs.local_ranks_filter, "RANKS",
          "Local ranks whose output is shown on the console: 0,1,2. Files get the output of all of them.");
  d.value("duplicate-stdout-filters", given.logs.duplicate_stdout_filters, "WORDS",
          "Copy teed lines that contain one of these words, separated by commas, to attempt_<n>/filtered_stdout.log. "
          "Write a comma within a word twice.");
  d.value("duplicate-stderr-filters", given.logs.duplicate_stderr_filters, "WORDS",
          "Like --duplicate-stdout-filters, for stderr and filtered_stderr.log.");

  d.value("logs-specs", given.logs.logs_specs, "default",
          "Accepted for compatibility. Only default is supported: other values name Python plug-ins, which a native "
          "launcher cannot load.")
      .variable("");

  d.value(
       "stdin", given.stdin_reader, "RANK|all|none",
       "Worker that reads ddprun's stdin: a rank of the job, all workers, or none. The stdin of the others is empty. "
       "Default: rank 0 if stdin is a terminal, else all. While ddprun is in the background of a shell, no "
       "worker reads the terminal.")
      .ddprun_only();
}

void declare_failure_and_shutdown(Declaration& d, GivenOptions& given) {
  d.group("Failure and shutdown");
  d.value("max-restarts", given.max_restarts, "N",
          "Maximum number of restarts after failures; each restarts all workers of the job.")
      .check(kCount);
  d.value(
       "on-failure", given.on_failure, "restart|replace|shrink",
       "What becomes of the workers that live when others fail: restart ends them, and starts all workers again; "
       "replace and shrink keep those that can go on (ddp::run of libddp, ddprun.attempts() in Python), and start only "
       "the others. replace is for jobs of a fixed number of nodes, and waits until a lost node is replaced. shrink is "
       "for elastic jobs (--nnodes MIN:MAX): they go on at once without a node that is lost, and take in one that "
       "comes.")
      .check(one_of({"restart", "replace", "shrink"}))
      .ddprun_only();
  d.value("restart-window", given.restart_window, "TIME",
          "Count only restarts within this time, such as 90s, 30m or 2h, against --max-restarts: a job that runs for "
          "weeks does not end because of failures that have nothing to do with one another. Default: all count.")
      .check([](const std::string& text) -> std::string {
        return text.empty() || rendezvous::parse_duration(text) ? "" : "give a time such as 90s, 30m or 2h";
      })
      .ddprun_only();
  d.value("exclude-after", given.exclude_after, "N",
          "A node in which N failures began makes room for any other that waits (c10d backend, more nodes than "
          "--nnodes). It waits in turn, and has a place again only if no other node can take it. 0: never.")
      .check(kCount)
      .ddprun_only();
  d.time("shutdown-timeout", given.shutdown_timeout,
         "Time from the signal that asks workers and what they have started to end until SIGKILL. "
         "TORCH_ELASTIC_SHUTDOWN_TIMEOUT overrides the default.")
      .check(whole_seconds);
  d.time("monitor-interval", given.monitor_interval,
         "Polling interval for large workers (over 64 MiB) that do not use libddp: the kernel reports their exit late, "
         "once it has freed their memory. All other workers are reported immediately.")
      .check(time_in_range(1e-9, 1e9, "above 0"));
  d.time("stacks-timeout", given.stacks_timeout,
         "Time to find out what the workers are doing before they are stopped because one of them has failed and no "
         "restart is left, or because it timed out: the stacks of all of them end the report. 0 takes none.")
      .check(time_in_range(0, 60, "0 to 60 s"))
      .ddprun_only();
  d.time("hang-timeout", given.hang_timeout,
         "Tell which rank the others wait for, and on which line, when the workers of the job make no progress for "
         "this time: no output, no step that they show (ddp::progress, ddprun.progress), and, where not all show "
         "steps, nothing that looks like work. 0: never. Give it on all nodes.")
      .check(kTime)
      .ddprun_only();
  d.value("on-hang", given.on_hang, "tell|restart|stop",
          "What else to do when the workers make no progress for --hang-timeout: tell does nothing else, restart "
          "restarts them as after a failure (--max-restarts), stop ends the job with exit code 1.")
      .check(one_of({"tell", "restart", "stop"}))
      .ddprun_only();
  d.value(
      "signals-to-handle", given.signals, "NAMES",
      "Signals that end the job when ddprun receives them. The first one is forwarded to the workers and starts the "
      "shutdown timeout; a second one kills them at once. Within 2 s of the first, only SIGINT counts as a second "
      "one.");
}

void declare_nodes(Declaration& d, GivenOptions& given) {
  d.group("Nodes and rendezvous");
  d.value("nnodes", given.nodes.nnodes, "N|MIN:MAX",
          "Number of nodes. MIN:MAX with the c10d and etcd backends makes the job elastic: it runs with any number of "
          "nodes in that range. Default: what the platform says that has started ddprun on each node, such as Slurm or "
          "SkyPilot, else 1.");
  d.value("node-rank", given.nodes.node_rank, "N",
          "Static backend: rank of this node, unique in the job; node 0 coordinates. c10d and etcd backends: a new job "
          "orders its nodes by this, after the one that coordinates; else by their host names.")
      .check(kCount);
  d.value("master-addr", given.nodes.master_addr, "ADDRESS",
          "Static backend: address of node 0 that all nodes can reach (MASTER_ADDR). Default: 127.0.0.1.");
  d.value("master-port", given.nodes.master_port, "PORT",
          "Static backend: port of node 0 (MASTER_PORT). Default: 29500; with one node any free port, so that jobs do "
          "not collide.")
      .check(in_range(0, 65535, "a port number"));
  d.flag("standalone", given.nodes.standalone, "Run on one node with a free port, whatever the platform says.");
  d.value("rdzv-backend", given.nodes.rdzv_backend, "static|c10d|etcd|etcd-v2",
          "How nodes get their ranks: static takes them from --node-rank, c10d assigns them as nodes join. With etcd "
          "they also join and get them so, and no node is special: the job's record is in etcd 3, and if the node that "
          "coordinates is lost another one goes on. etcd-v2 means the same here.");
  d.value(
      "rdzv-endpoint", given.nodes.rdzv_endpoint, "HOST[:PORT],...|FILE",
      "c10d backend: the node that coordinates, the same on all nodes; default port 29400. With --rdzv-conf "
      "store_type=file the path of a file in a folder that all nodes share: the first node to create it coordinates. "
      "etcd backend: one or more members of etcd, with commas between; default port 2379. "
      "Static backend: another way to give --master-addr and --master-port.");
  d.value("rdzv-id", given.nodes.rdzv_id, "NAME",
          "ID of the run (TORCHELASTIC_RUN_ID), the same on all nodes. Default: the platform's, such as "
          "slurm-JOB.STEP, else none; with one node a random ID. The etcd backend needs one.");
  d.value(
      "rdzv-conf", given.nodes.rdzv_conf, "K=V,...",
      "Rendezvous settings: join_timeout (600 s), the wait for the first nodes and for a replacement; "
      "last_call_timeout (30 s), the wait for more than MIN nodes; keep_alive_interval (5 s) times "
      "keep_alive_max_attempt (3), after which a silent node counts as lost; is_host (true or false), whether this "
      "node coordinates, if that cannot be determined; store_type (tcp or file), whether nodes meet at an address or "
      "in a file. etcd backend: protocol (http or https), cacert, cert and key (PEM files; also ca_cert, ssl_cert and "
      "ssl_cert_key), user and password_file.");
  d.value("local-addr", given.nodes.local_addr, "ADDRESS",
          "c10d and etcd backends: address of this node that others use if it coordinates.");
  d.value("topology", given.nodes.topology, "FILE",
          "c10d and etcd backends: a file as Slurm's topology.conf. Nodes that come together get neighbouring ranks if "
          "they are neighbours in the network. Give it where the job is coordinated.")
      .ddprun_only();
}

// These belong to the group of the nodes: they say who may join the job.
void declare_trust(Declaration& d, GivenOptions& given) {
  d.value(
       "secret", given.secret, "auto|none|[file:]PATH",
       "What the nodes of a job prove to each other: that they have the same secret file, or with MUNGE that they are "
       "of the same user. auto takes the file of DDPRUN_SECRET_FILE, else /run/secrets/ddprun/secret, else MUNGE in "
       "a step of Slurm; where there is none of these, any node may join, and ddprun says so.")
      .check([](const std::string& text) -> std::string {
        return text.empty() || text == "file:" ? "give auto, none or the path of a file" : "";
      })
      .ddprun_only();
  d.value("make-secret", given.make_secret, "FILE",
          "Write a new secret to FILE and exit. Nodes with --secret FILE admit only each other.")
      .variable("")
      .ddprun_only();
  d.flag("any-user", given.any_user,
         "Let processes of every user of this machine connect to the job's port. Without it, connections within the "
         "machine are refused unless they are of the user who runs ddprun, or root's. For workers that a wrapper such "
         "as sudo starts as another user.")
      .ddprun_only();
}

void declare_many_hosts(Declaration& d, GivenOptions& given) {
  d.group("Many hosts");
  d.value(
       "hosts", given.hosts.hosts, "HOST[:N],...",
       "Start the job on these hosts, by ssh, with N workers each; ddprun itself comes along. Each host is a node, the "
       "first is node rank 0. Without N, --nproc-per-node counts. localhost and this machine's name need no ssh. "
       "Output, reports and the exit code come back here; when this ddprun ends or is killed, so does the job on all "
       "hosts.",
       'H')
      .variable("")
      .ddprun_only();
  d.value("hostfile", given.hosts.hostfile, "FILE",
          "As --hosts, with the hosts of a file: a line each, HOST slots=N, as Open MPI, DeepSpeed and accelerate read "
          "them. USER@HOST, HOST:N, port=PORT and comments (#) are read too. --nproc-per-node counts before slots.")
      .variable("")
      .ddprun_only();
  d.value("include", given.hosts.include, "HOST[:SLOTS]@...",
          "Of the list, use these hosts only, and of a host these slots (GPUs) only: a@b:0,2.")
      .variable("")
      .ddprun_only();
  d.value("exclude", given.hosts.exclude, "HOST[:SLOTS]@...", "Of the list, leave out these hosts, or these slots.")
      .variable("")
      .ddprun_only();
  d.values("export", given.hosts.exports, "NAME[=VALUE]",
           "Give the job on the hosts this variable too. May be given several times. Without it they get PATH, "
           "LD_LIBRARY_PATH, VIRTUAL_ENV, LOGLEVEL, and those that begin with CONDA_, PYTHON, PYTORCH_, TORCH_, PET_, "
           "DDP_, NCCL_, GLOO_, UCX_, FI_, OMP_, MKL_, KMP_ or HF_.",
           'x')
      .variable("")
      .ddprun_only();
  d.value(
       "launch-agent", given.hosts.launch_agent, "COMMAND",
       "What starts a command on a host, instead of ssh: it is run with the host and a line for a shell there as its "
       "last two words, and passes on stdin, stdout and stderr. {host} in COMMAND stands for the host: \"kubectl exec "
       "-i {host} -- sh -c\", \"srun -u -N1 -n1 -w {host} sh -c\".")
      .ddprun_only();
}

void declare_own(Declaration& d, GivenOptions& given) {
  d.group("ddprun itself");
  d.value("log-level", given.log_level, "debug|info|warning|error", "Lowest level of ddprun's own messages to show.")
      .variable("LOGLEVEL")
      .ddprun_only();
  d.value("log-format", given.log_format, "text|json",
          "Format of ddprun's own messages: text for people, or json, one object per line with time, level, node, "
          "round, rank, event and reason.")
      .ddprun_only();
  d.value("event-log-handler", given.logs.event_log_handler, "null|console",
          "console writes the records of --event-log-file to stderr. Other handlers are Python plug-ins and are not "
          "supported.");
  d.value("event-log-file", given.logs.event_log_file, "FILE",
          "Append torchrun's event records to FILE as JSON lines: when workers started, succeeded, failed or were "
          "terminated, and how the node ended.")
      .ddprun_only();
  d.value("report-file", given.logs.report_file, "FILE",
          "Write to FILE how the job ended, as one JSON object: exit code, reason, this node's ranks, and every worker "
          "that failed. For programs that start ddprun. It is not written if nothing was started. With --hosts FILE is "
          "written here only, with the ranks of the first host.")
      .variable("")
      .ddprun_only();
  d.flag_with_value(
       "serve", given.page.serve, "0", "[ADDRESS:]PORT",
       "Show the running job in a web page at http://127.0.0.1:PORT/, as JSON at /job.json and as metrics for "
       "Prometheus at /metrics, from the node that coordinates. Without a port, or with port 0, at any free one; a "
       "line "
       "has the URL. At 127.0.0.1 it is for the user who runs the job; another address needs --serve-token.",
       Takes::ValueIfPort)
      .ddprun_only();
  d.value(
       "serve-token", given.page.token_file, "FILE",
       "The page of --serve is for those who have the token in FILE, which --make-secret FILE makes: as the password "
       "in a browser, as a Bearer token for Prometheus.")
      .ddprun_only();
  d.value(
       "trace", given.trace_file, "FILE",
       "Write a timeline of the job to FILE for https://ui.perfetto.dev: rounds, workers, failures, restarts, and the "
       "collectives of workers that use libddp. With several nodes, FILE is written by the node that coordinates, "
       "and others write beside it until the job ends.")
      .ddprun_only();
  d.value("start-method", given.start_method, "spawn|fork|forkserver",
          "Accepted and without effect: workers are started with exec, or with --preload forked from a Python process.")
      .check(one_of({"spawn", "fork", "forkserver"}));
  d.value("print-completion", given.print_completion, "bash",
          "Print a completion script and exit: ddprun --print-completion bash > "
          "~/.local/share/bash-completion/completions/ddprun")
      .check(one_of({"bash"}))
      .variable("");
  d.value(
       "print", given.print, "bindings|environment|man|versions",
       "Print one of these and exit, without starting anything. bindings: the CPUs that each worker would run on. "
       "environment: what the platform says about the nodes of the job, such as Slurm, MPI, SkyPilot or Kubernetes, "
       "and what of it would be used. man: this page as a manual page (ddprun --print man | man -l -). versions: of "
       "ddprun and of the libraries that are linked into it, which a distribution's update does not reach, and where "
       "py-spy and eu-stack are, which take the stacks of workers, or how to get them.")
      .check(one_of({"bindings", "environment", "man", "versions"}))
      .variable("")
      .ddprun_only();
  d.flag("version", given.version, "Print the version and exit.").variable("").ddprun_only();
  d.flag("help", given.help, "Print this page and exit.", 'h').variable("");
}

}  // namespace

void declare(Declaration& d, GivenOptions& given) {
  declare_workers(d, given);
  declare_program(d, given);
  declare_output(d, given);
  declare_failure_and_shutdown(d, given);
  declare_nodes(d, given);
  declare_trust(d, given);
  declare_many_hosts(d, given);
  declare_own(d, given);
}

}  // namespace ddp::apps
