// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/options.hpp"

#include <sched.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <climits>
#include <csignal>
#include <cstring>

#include "apps/ddprun/arguments.hpp"
#include "apps/ddprun/help.hpp"
#include "apps/ddprun/log_options.hpp"
#include "apps/ddprun/node_options.hpp"
#include "launcher/gpus.hpp"
#include "launcher/random_id.hpp"
#include "rendezvous/error.hpp"
#include "rendezvous/link_secret.hpp"
#include "rendezvous/worker_contract.hpp"

namespace ddp::apps {

namespace {

constexpr char kVersion[] = "ddprun " DDPRUN_VERSION "\n";
constexpr char kDefaultSignals[] = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";

// Options of torchrun that this version knows but cannot do.
struct NotYet {
  OptionName option;
  const char* instead;
};
const NotYet kNotYet[] = {
    {{"logs-specs"}, "it names a Python plug-in, which a native launcher cannot load"},
    {{"event-log-handler"}, "it names a Python plug-in; --event-log-file writes the same records to a file"},
    {{"run-path", 0, false}, "leave it out: scripts are run as `python script.py`"},
    {{"print-completion"}, "there is none yet"},
};

// The values as CLI11 fills them, before they are checked against each other.
struct Raw {
  std::string nproc_per_node = "1";
  NodeOptions nodes;
  int max_restarts = 0;
  double monitor_interval = 0.1;
  std::string start_method = "spawn";
  std::string role = "default";
  bool module = false;
  bool no_python = false;
  LogOptions logs;
  std::string make_secret;
  std::string signals = kDefaultSignals;
  int shutdown_timeout = 30;
  bool virtual_local_rank = false;
  std::string gpus;
  std::string numa_binding;
  bool print_bindings = false;
  std::string log_level = "warning";
  std::string log_format = "text";
  bool version = false;
};

std::string pet(const std::string& name) {
  std::string variable = "PET_" + name;
  std::transform(variable.begin(), variable.end(), variable.begin(),
                 [](unsigned char c) { return c == '-' ? '_' : static_cast<char>(std::toupper(c)); });
  return variable;
}

// A CLI11 check with words of our own. `what`: "a number of seconds, 0 or more".
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

// Declares every option once: name, variable, type, group, help. If one is given twice the last counts, as in Python.
class Declaration {
 public:
  explicit Declaration(CLI::App& app) : app_(app) {}

  void group(const std::string& name) { group_ = name; }

  template <typename T>
  CLI::Option* value(const std::string& name, T& target, const std::string& shown, const std::string& help,
                     char letter = 0) {
    names_.push_back({name, letter});
    return app_.add_option(spelled(name, letter), target, help)
        ->group(group_)
        ->type_name(shown)
        ->envname(pet(name))
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
        ->capture_default_str();
  }

  CLI::Option* flag(const std::string& name, bool& target, const std::string& help, char letter = 0) {
    names_.push_back({name, letter, false});
    return app_.add_flag(spelled(name, letter), target, help)
        ->group(group_)
        ->envname(pet(name))
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }

  const std::vector<OptionName>& names() const { return names_; }

 private:
  static std::string spelled(const std::string& name, char letter) {
    return (letter ? std::string("-") + letter + "," : "") + "--" + name;
  }

  CLI::App& app_;
  std::string group_;
  std::vector<OptionName> names_ = {{"help", 'h', false}};
};

std::vector<OptionName> declare(CLI::App& app, Raw& raw) {
  Declaration d(app);
  d.group("Workers");
  d.value("nproc-per-node", raw.nproc_per_node, "N|cpu|gpu|auto",
          "Workers on this node: a number, one per CPU, one per GPU, or auto: one per GPU if there are any, else one "
          "per CPU.");
  d.value("gpus", raw.gpus, "LIST",
          "GPUs of this job on this node, as for CUDA_VISIBLE_DEVICES. Default: what was inherited, else all.");
  d.flag("virtual-local-rank", raw.virtual_local_rank,
         "Show each worker its own GPU only, as device 0, and set LOCAL_RANK=0.");
  d.value(
       "numa-binding", raw.numa_binding, "node|socket|exclusive|core-complex",
       "Run each worker on CPUs near its GPU: those of its NUMA node; of its socket; cores of the node that no other "
       "worker has; cores that share a cache. Without a GPU workers are spread over the nodes.")
      ->envname("")
      ->check([](const std::string& text) -> std::string {
        return launcher::numa_binding_from(text) ? "" : "give node, socket, exclusive or core-complex";
      });
  d.flag("print-bindings", raw.print_bindings, "Print which worker would run on which CPUs, and exit.")->envname("");
  d.value("role", raw.role, "NAME", "Role of the workers (ROLE_NAME).");

  d.group("Program");
  d.flag("module", raw.module, "The program is a Python module: run `python -u -m program`.", 'm');
  d.flag("no-python", raw.no_python, "Execute the program as it is, also if it looks like a Python script.");

  d.group("Output");
  d.value("redirects", raw.logs.redirects, "STREAMS",
          "What goes into files instead of to the console: 1 stdout, 2 stderr, 3 both, 0 neither, of all workers; or "
          "of single ones, LOCAL_RANK:STREAMS,... The worker writes the file itself.",
          'r');
  d.value("tee", raw.logs.tee, "STREAMS",
          "What goes into files and to the console, where each line has a prefix; as for --redirects.", 't');
  d.value("log-dir", raw.logs.log_dir, "DIR",
          "Where files are: DIR/<run id>_<random>/attempt_<n>/<local rank>/stdout.log, stderr.log, and error.json for "
          "the program's own account of its failure. /dev/null: none, everything goes to the console. Default: a "
          "temporary folder, kept if it has logs.");
  d.value("log-line-prefix-template", raw.logs.log_line_prefix_template, "TEXT",
          "Prefix of teed lines on the console, with ${role_name}, ${local_rank}, ${rank}, ${hostname}. "
          "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE sets the default, else it is [${role_name}${local_rank}]:");
  d.value("local-ranks-filter", raw.logs.local_ranks_filter, "RANKS",
          "Local ranks whose output is on the console: 0,1,2. Files have it of all.");
  d.value("duplicate-stdout-filters", raw.logs.duplicate_stdout_filters, "WORDS",
          "Teed lines that contain one of these words, with commas between, are also in attempt_<n>/"
          "filtered_stdout.log; a comma within a word is written twice.");
  d.value("duplicate-stderr-filters", raw.logs.duplicate_stderr_filters, "WORDS",
          "The same of stderr, in filtered_stderr.log.");

  d.group("Failure and shutdown");
  d.value("max-restarts", raw.max_restarts, "N", "How often a failed job is started anew, all workers at once.")
      ->check(kCount);
  d.value("shutdown-timeout", raw.shutdown_timeout, "SECONDS",
          "From the signal that asks workers to end until SIGKILL. TORCH_ELASTIC_SHUTDOWN_TIMEOUT sets the default.")
      ->check(kSeconds);
  d.value("signals-to-handle", raw.signals, "NAMES",
          "Signals to ddprun that end the job: forwarded once, then the grace period; a second one kills at once.");

  d.group("Nodes and rendezvous");
  d.value("nnodes", raw.nodes.nnodes, "N|MIN:MAX",
          "Number of nodes. MIN:MAX, with c10d: elastic, the job runs with as many as there are. Default: 1.");
  d.value("node-rank", raw.nodes.node_rank, "N", "Static: rank of this node, each exactly once; 0 coordinates.")
      ->check(kCount);
  d.value("master-addr", raw.nodes.master_addr, "ADDRESS",
          "Static: address of node 0, as all nodes can reach it (MASTER_ADDR). Default: 127.0.0.1.");
  d.value(
       "master-port", raw.nodes.master_port, "PORT",
       "Static: port of node 0 (MASTER_PORT). Default: 29500; with one node any free one, so that jobs do not collide.")
      ->check(in_range(0, 65535, "a port number"));
  d.flag("standalone", raw.nodes.standalone, "One node, a free port: the default with one node.");
  d.value("rdzv-backend", raw.nodes.rdzv_backend, "static|c10d",
          "How nodes get their ranks: static, from --node-rank; c10d, as they come.");
  d.value("rdzv-endpoint", raw.nodes.rdzv_endpoint, "HOST[:PORT]",
          "c10d: the node that coordinates, the same on all nodes; port 29400 if none is given. Static: the same as "
          "--master-addr, --master-port.");
  d.value("rdzv-id", raw.nodes.rdzv_id, "NAME",
          "The run's id (TORCHELASTIC_RUN_ID), the same on all nodes. Default: none; with one node a random one.");
  d.value("rdzv-conf", raw.nodes.rdzv_conf, "K=V,...",
          "join_timeout (600 s) for the first nodes and for a replacement; last_call_timeout (30 s) for more than MIN; "
          "keep_alive_interval (5 s) times keep_alive_max_attempt (3) until a silent node counts as lost; is_host "
          "(true or false) if it cannot be found out.");
  d.value("local-addr", raw.nodes.local_addr, "ADDRESS",
          "c10d: this node's address, for its workers if it coordinates.");
  d.value("make-secret", raw.make_secret, "FILE",
          "Write a new secret into FILE and exit. Nodes with DDPRUN_SECRET_FILE=FILE let only each other in.")
      ->envname("");

  d.group("ddprun itself");
  d.value("log-level", raw.log_level, "LEVEL", "What ddprun says: debug, info, warning, error.")->envname("LOGLEVEL");
  d.value("log-format", raw.log_format, "text|json",
          "How it says it: lines for people, or one JSON object a line with time, level, node, round, rank, event and "
          "reason.");
  d.value("event-log-file", raw.logs.event_log_file, "FILE",
          "Append what torchrun's --event-log-handler records, as JSON lines: when workers started, succeeded, failed "
          "or were terminated, and what became of the node.");
  d.value("monitor-interval", raw.monitor_interval, "SECONDS",
          "Accepted; ddprun hears of a death when it happens and polls nothing.")
      ->check(in_range(1e-9, 1e9, "a number of seconds above 0"));
  d.value("start-method", raw.start_method, "spawn|fork|forkserver", "Accepted; workers are always executed.")
      ->check([](const std::string& text) -> std::string {
        return text == "spawn" || text == "fork" || text == "forkserver" ? "" : "give spawn, fork or forkserver";
      });
  d.flag("version", raw.version, "Print the version.")->envname("");
  app.set_help_flag("-h,--help", "Print this page.")->group("ddprun itself");

  std::vector<OptionName> names = d.names();
  for (const NotYet& entry : kNotYet) names.push_back(entry.option);
  return names;
}

void refuse_what_is_not_there(const std::vector<std::string>& options) {
  for (const std::string& option : options) {
    for (const NotYet& entry : kNotYet) {
      if (option.substr(2, option.find('=') - 2) == entry.option.name) {
        throw UsageError("--" + entry.option.name + " is not there yet in this version; " + entry.instead);
      }
    }
  }
}

int parse_number(const std::string& text) {
  const bool digits = !text.empty() && text.size() < 8 &&
                      std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
  return digits ? std::stoi(text) : -1;
}

int usable_cpus() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                     : static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
}

// GPUs this node gives the job: those listed, else those found.
int usable_gpus(const std::optional<std::string>& gpus) {
  const auto visible = launcher::visible_gpus(gpus);
  if (!visible || visible->empty()) return 0;
  return static_cast<int>(std::count(visible->begin(), visible->end(), ',')) + 1;
}

int worker_count(const std::string& text, const std::optional<std::string>& gpus) {
  if (text == "cpu") return usable_cpus();
  if (text == "gpu" || text == "auto") {
    const int count = usable_gpus(gpus);
    if (count > 0) return count;
    if (text == "auto") return usable_cpus();
    throw UsageError(
        "--nproc-per-node gpu: no GPU found (NVML sees none, and neither --gpus nor CUDA_VISIBLE_DEVICES "
        "names one); give a number, or use auto");
  }
  const int count = parse_number(text);
  if (count < 1) throw UsageError("--nproc-per-node " + text + ": give a number above 0, or cpu, gpu or auto");
  return count;
}

// Fills config.stop_signals; names that no signal has are told and skipped, as torchrun does.
void parse_signals(const std::string& names, bool is_default, launcher::LaunchConfig& config) {
  std::istringstream list(names);
  for (std::string name; std::getline(list, name, ',');) {
    int number = 0;
    for (int signal = 1; signal < SIGRTMIN && number == 0; ++signal) {
      const char* abbreviation = sigabbrev_np(signal);
      if (abbreviation && name == std::string("SIG") + abbreviation) number = signal;
    }
    if (number == 0 || number == SIGKILL || number == SIGSTOP || number == SIGCHLD) {
      fprintf(stderr, "ddprun: --signals-to-handle: '%s' is no signal that can be handled; skipped\n", name.c_str());
      continue;
    }
    struct sigaction current = {};
    sigaction(number, nullptr, &current);
    // nohup ddprun ... & must survive the terminal, so a hang-up that was ignored from outside stays ignored.
    if (is_default && number == SIGHUP && current.sa_handler == SIG_IGN) continue;
    config.stop_signals.push_back(number);
  }
  config.stop_signal_names = names;
}

launcher::LaunchConfig to_config(const Raw& raw, const CLI::App& app) {
  launcher::LaunchConfig config;
  if (app.count("--gpus") > 0 || !raw.gpus.empty()) config.gpus = raw.gpus;
  config.workers = worker_count(raw.nproc_per_node, config.gpus);
  config.role = raw.role;
  config.job.max_restarts = raw.max_restarts;
  config.shutdown_timeout = std::chrono::seconds(raw.shutdown_timeout);
  config.virtual_local_rank = raw.virtual_local_rank;
  const auto binding = *launcher::numa_binding_from(raw.numa_binding);
  if (binding != launcher::NumaBinding::None || raw.print_bindings) {
    config.bindings = launcher::bind_workers(binding, config.workers, launcher::visible_gpus(config.gpus));
  }
  config.logs = resolve_logs(raw.logs, getenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"));
  parse_signals(raw.signals, raw.signals == kDefaultSignals, config);

  NodeOptions nodes = raw.nodes;
  const std::string taken = fill_from_scheduler(nodes, [](const char* name) -> const char* { return getenv(name); });
  if (!taken.empty()) fprintf(stderr, "ddprun: %s\n", taken.c_str());
  resolve_nodes(
      nodes, [](const std::string& line) { fprintf(stderr, "ddprun: %s\n", line.c_str()); }, config);
  if (const char* file = getenv(rendezvous::contract::kSecretFile)) config.secret_file = file;
  return config;
}

}  // namespace

std::variant<Launch, JustPrint> parse_options(const std::vector<std::string>& arguments,
                                              const std::string& own_folder) {
  CLI::App app;
  app.formatter(std::make_shared<ManualPage>());
  Raw raw;
  if (const char* seconds = getenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT"); seconds && *seconds) {
    raw.shutdown_timeout = parse_number(seconds);
    if (raw.shutdown_timeout < 0) {
      throw UsageError(std::string("TORCH_ELASTIC_SHUTDOWN_TIMEOUT=") + seconds + ": give a number of seconds");
    }
  }
  const std::vector<OptionName> names = declare(app, raw);
  Arguments split = split_arguments(arguments, names);
  refuse_what_is_not_there(split.options);
  try {
    app.parse(std::vector<std::string>(split.options.rbegin(), split.options.rend()));  // CLI11 takes them reversed
  } catch (const CLI::CallForHelp&) {
    return JustPrint{app.help()};
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  if (raw.version) return JustPrint{kVersion};
  if (!raw.make_secret.empty()) {
    rendezvous::make_secret_file(raw.make_secret);
    return JustPrint{raw.make_secret + ": a new secret; copy it to each node, and set DDPRUN_SECRET_FILE there\n"};
  }
  if (raw.print_bindings) return JustPrint{launcher::bindings_table(to_config(raw, app).bindings)};
  if (!split.program) throw UsageError("no program given: nothing to run");
  if (raw.module && raw.no_python) throw UsageError("--module and --no-python contradict each other; choose one");

  Launch launch;
  try {
    launch.log = {launcher::log_level_from(raw.log_level), launcher::log_format_from(raw.log_format)};
  } catch (const rendezvous::Error& error) {
    throw UsageError(std::string("--log-level, --log-format: ") + error.what());
  }
  launch.config = to_config(raw, app);
  const auto kind = raw.module      ? launcher::ProgramKind::Module
                    : raw.no_python ? launcher::ProgramKind::Direct
                                    : launcher::ProgramKind::Guess;
  launch.config.program = launcher::find_program(*split.program, kind, own_folder);
  launch.config.program_args = std::move(split.program_args);
  return launch;
}

}  // namespace ddp::apps
