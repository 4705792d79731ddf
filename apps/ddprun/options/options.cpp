// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/options/options.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "apps/ddprun/manual/completion.hpp"
#include "apps/ddprun/manual/help.hpp"
#include "apps/ddprun/manual/man_page.hpp"
#include "apps/ddprun/options/arguments.hpp"
#include "apps/ddprun/options/given_options.hpp"
#include "apps/ddprun/options/nodes/environment_page.hpp"
#include "apps/ddprun/options/nodes/platform_options.hpp"
#include "apps/ddprun/options/torch_devices.hpp"
#include "apps/ddprun/options/usage_error.hpp"
#include "launcher/config/temporary_folder.hpp"
#include "launcher/diagnosis/stacks/take_stacks.hpp"
#include "launcher/hosts/on_host_core.hpp"
#include "launcher/placement/gpus.hpp"
#include "launcher/placement/numa_binding.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/random_id.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/membership/secret.hpp"
#include "rendezvous/worker_contract.hpp"

namespace ddp::apps {

namespace {

constexpr char kVersion[] = "ddprun " DDPRUN_VERSION "\n";
constexpr char kCopiedIn[] = DDPRUN_COPIED_IN;  // a line for each program and library of this build

// Returns the number, or -1 if the text is none, or if it is negative or larger than anybody can mean.
int parse_count(const std::string& text) {
  const int count = rendezvous::parse_number<int>(text).value_or(-1);
  return count >= 0 && count < 10'000'000 ? count : -1;
}

int usable_cpus() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                     : static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
}

// Returns the number of devices that only the user's PyTorch knows. Throws UsageError if there are none.
int count_by_torch(const std::string& device, const launcher::ProgramPlaces& places) {
  TorchDevices devices;
  try {
    devices = ask_torch(launcher::find_python("--nproc-per-node " + device, places), device);
  } catch (const launcher::ProgramError& error) {
    devices.why_none = error.what();
  }
  if (devices.count > 0) return devices.count;
  throw UsageError("--nproc-per-node " + device + ": " + devices.why_none + "; give a number, or cpu, gpu or auto");
}

// Returns the number of workers for auto: torchrun's, the number of the node's accelerators, else of its CPUs.
int count_for_auto(const std::optional<std::string>& gpus, const launcher::ProgramPlaces& places) {
  const int count = launcher::visible_gpus(gpus).count();
  if (count > 0) return count;
  if (!launcher::has_other_accelerators()) return usable_cpus();
  try {
    return count_by_torch("auto", places);
  } catch (const UsageError&) {  // it uses the CPUs
    return usable_cpus();
  }
}

// Returns whether the text may be the name of a kind of device in PyTorch.
bool is_device_name(const std::string& text) {
  return !text.empty() && std::isalpha(static_cast<unsigned char>(text[0])) &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

int worker_count(const std::string& given, const std::optional<std::string>& gpus,
                 const launcher::ProgramPlaces& places) {
  using launcher::GpuKind;
  const std::string text(rendezvous::trimmed(given));
  if (text == "cpu") return usable_cpus();
  if (text == "auto") return count_for_auto(gpus, places);
  if (text == "gpu") {
    const int count = launcher::visible_gpus(gpus).count();
    if (count > 0) return count;
    throw UsageError(
        "--nproc-per-node gpu: no GPU found (NVML sees none, nor does /sys one of AMD, Intel or Ascend, and neither "
        "--gpus nor a variable such as CUDA_VISIBLE_DEVICES names one); give a number, or use auto");
  }
  if (text == "xpu" || text == "npu") {
    const GpuKind kind = text == "xpu" ? GpuKind::Intel : GpuKind::Ascend;
    const int count = launcher::visible_gpus(gpus, {kind, launcher::count_gpus(kind)}).count();
    if (count > 0) return count;
  }
  if (is_device_name(text)) return count_by_torch(text, places);
  const int count = parse_count(text);
  if (count < 1) throw UsageError("--nproc-per-node " + text + ": give a number above 0, or cpu, gpu or auto");
  return count;
}

// Returns the interval, rounded to 1 ms or more. torchrun takes any number above 0, so none is refused as too small or
// too large.
std::chrono::milliseconds monitor_interval(double seconds) {
  return std::chrono::milliseconds(std::lround(std::clamp(1e3 * seconds, 1.0, 1e9)));
}

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(std::lround(1e3 * seconds));
}

// Fills in what hangs are, and what is done about them.
void resolve_hangs(const GivenOptions& given, launcher::LaunchConfig& config) {
  using launcher::OnHang;
  config.hang_timeout = milliseconds_of(given.hang_timeout);
  config.on_hang = given.on_hang == "restart" ? OnHang::Restart : given.on_hang == "stop" ? OnHang::Stop : OnHang::Tell;
  if (config.on_hang == OnHang::Tell) return;
  if (config.hang_timeout.count() == 0) {
    throw UsageError("--on-hang " + given.on_hang + " does nothing without --hang-timeout TIME; give both");
  }
}

// Fills in which restarts count, and which nodes make room.
void resolve_budget(const GivenOptions& given, launcher::LaunchConfig& config) {
  if (!given.restart_window.empty()) {
    if (given.max_restarts == 0) {
      throw UsageError("--restart-window " + given.restart_window +
                       " does nothing without --max-restarts N; give both");
    }
    config.job.restart_window = *rendezvous::parse_duration(given.restart_window);
  }
  config.job.exclude_after = given.exclude_after;
  if (given.exclude_after == 0 || (config.job.max_nodes > 1 && !config.job.node_ranks_given)) return;
  throw UsageError("--exclude-after " + std::to_string(given.exclude_after) +
                   " needs nodes that can take the place of others: several with --rdzv-backend c10d, and more of them "
                   "than --nnodes says");
}

// Whether workers that live stay when others fail.
bool survivors_stay(const GivenOptions& given, const launcher::LaunchConfig& config) {
  const bool shrinks = given.on_failure == "shrink";
  if (!shrinks && given.on_failure != "replace") return false;
  const std::string option = "--on-failure " + given.on_failure + " ";
  const std::string nodes = std::to_string(config.job.max_nodes);
  const bool is_elastic = config.job.min_nodes < config.job.max_nodes;
  if (shrinks && !is_elastic) {
    throw UsageError(option + "needs an elastic number of nodes, since a job of --nnodes " + nodes +
                     " cannot go on with fewer; give --nnodes MIN:" + (nodes == "1" ? "MAX" : nodes) +
                     ", or --on-failure replace");
  }
  if (!shrinks && is_elastic) {
    throw UsageError(option + "needs a fixed number of nodes, since it waits for a replacement; give --nnodes " +
                     nodes + ", or --on-failure shrink, which goes on with the nodes that are left");
  }
  if (!shrinks && config.job.max_restarts == 0) {
    throw UsageError(option + "does nothing without --max-restarts N, since each failure spends a restart; give both");
  }
  if (config.keep_memory != launcher::KeepMemory::No) {
    throw UsageError(option +
                     "does not go with --keep-memory: a new process gets its state from a worker that stays, or "
                     "from memory that was kept, not from both; leave one of them out");
  }
  return true;
}

launcher::StdinReader stdin_reader(const std::string& text, const launcher::LaunchConfig& config) {
  using Who = launcher::StdinReader::Who;
  if (text.empty()) return {};
  if (text == "all") return {Who::All};
  if (text == "none") return {Who::None};
  const int rank = parse_count(text);
  if (rank < 0) throw UsageError("--stdin " + text + ": give a rank, all or none");
  if (config.job.max_nodes == 1 && rank >= config.workers) {
    throw UsageError("--stdin " + text + ": this job's ranks are 0 to " + std::to_string(config.workers - 1));
  }
  return {Who::Rank, rank};
}

// Fills config.stop_signals. Names of no signal are skipped with a message, as in torchrun.
void parse_signals(const std::string& names, bool is_default, launcher::LaunchConfig& config) {
  std::istringstream list(names);
  for (std::string entry; std::getline(list, entry, ',');) {
    const std::string name(rendezvous::trimmed(entry));
    int number = 0;
    for (int signal = 1; signal < SIGRTMIN && number == 0; ++signal) {
      if (name.starts_with("SIG") && name == rendezvous::signal_name(signal)) number = signal;
    }
    if (number == 0 || number == SIGKILL || number == SIGSTOP || number == SIGCHLD) {
      fprintf(stderr, "ddprun: --signals-to-handle: '%s' is not a signal that can be handled; skipped\n", name.c_str());
      continue;
    }
    struct sigaction current = {};
    sigaction(number, nullptr, &current);
    // `nohup ddprun ... &` must survive the terminal, so a SIGHUP that the caller ignores stays ignored.
    if (is_default && number == SIGHUP && current.sa_handler == SIG_IGN) continue;
    config.stop_signals.push_back(number);
  }
  config.stop_signal_names = names;
}

// Returns the path of the FIFO for the workers' timers, as torchrun chooses it; empty if the user wants none. A path
// that comes from an outer job is that job's own.
std::string timer_file() {
  const char* enabled = getenv(rendezvous::contract::kEnableFileTimer);
  if (!enabled || strcmp(enabled, "1") != 0) return "";
  const char* path = getenv(rendezvous::contract::kRunId) ? nullptr : getenv(rendezvous::contract::kTimerFile);
  if (path && *path == '\0') {
    throw UsageError("TORCHELASTIC_TIMER_FILE is empty: give it the path of a file that does not exist, or unset it");
  }
  if (path) return std::filesystem::absolute(path).string();
  return launcher::temporary_folder() + "/watchdog_timer_" + rendezvous::random_id();
}

// Returns the number of workers as text: the user's, else the platform's, else 1.
std::string workers_as_text(const GivenOptions& given, const FromPlatform& platform) {
  return given.nproc_per_node.value_or(std::to_string(platform.workers.value_or(1)));
}

launcher::LaunchConfig to_config(const GivenOptions& given, const FromPlatform& platform,
                                 const launcher::ProgramPlaces& places) {
  launcher::LaunchConfig config;
  config.gpus = given.gpus;
  config.workers = worker_count(workers_as_text(given, platform), config.gpus, places);
  config.role = given.role;
  config.job.max_restarts = given.max_restarts;
  config.shutdown_timeout = std::chrono::seconds(given.shutdown_timeout);
  config.monitor_interval = monitor_interval(given.monitor_interval);
  config.stacks_within = milliseconds_of(given.stacks_timeout);
  config.virtual_local_rank = given.virtual_local_rank;
  const auto binding = *launcher::numa_binding_from(given.numa_binding);
  if (binding != launcher::NumaBinding::None || given.print == "bindings") {
    const launcher::VisibleGpus gpus = launcher::visible_gpus(config.gpus);
    const bool has_place = gpus.kind == launcher::GpuKind::Nvidia;  // only NVML is asked where a GPU is
    config.bindings = launcher::bind_workers(binding, config.workers, has_place ? gpus.list : std::nullopt);
  }
  config.logs = resolve_logs(given.logs, getenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"));
  const auto& shown = config.logs.shown_ranks;
  if (shown && *shown->begin() >= config.workers) {
    fprintf(stderr,
            "ddprun: --local-ranks-filter %s: the local ranks here are 0 to %d, so no worker's output is shown\n",
            given.logs.local_ranks_filter.c_str(), config.workers - 1);
  }
  parse_signals(given.signals, given.signals == kDefaultSignals, config);

  NodeOptions nodes = given.nodes;
  const char* not_shared = getenv(rendezvous::contract::kDisableSharedStore);
  nodes.shares_store = !not_shared || strcmp(not_shared, "1") != 0;
  resolve_nodes(
      nodes, [](const std::string& line) { fprintf(stderr, "ddprun: %s\n", line.c_str()); }, config);
  resolve_hangs(given, config);
  resolve_budget(given, config);
  config.trace_file = given.trace_file;
  config.page = resolve_page(given.page);
  config.stdin_reader = stdin_reader(given.stdin_reader, config);
  config.timer_file = timer_file();
  config.any_user = given.any_user;
  config.secret = given.secret;
  config.agreed_secret = platform.secret;
  const char* secret_file = getenv(rendezvous::contract::kSecretFile);
  const bool has_secret = given.secret == "auto" ? secret_file && *secret_file != '\0' : given.secret != "none";
  if (has_secret && config.job.max_nodes == 1) {
    fprintf(stderr, "ddprun: %s has no effect with one node: a secret guards the links between nodes\n",
            given.secret == "auto" ? rendezvous::contract::kSecretFile : "--secret");
  }
  return config;
}

// Returns the argument that goes before the program's own arguments; empty if there is none.
std::string legacy_argument(const GivenOptions& given) {
  const std::string& spelling = given.legacy_local_rank;
  if (spelling.empty() || spelling == "0") return "";
  if (given.use_env) throw UsageError("--legacy-local-rank and --use-env contradict each other; choose one");
  if (given.no_python) {
    throw UsageError("--legacy-local-rank is for Python scripts, --no-python for other programs; choose one");
  }
  if (spelling == "dash" || spelling == "1") return "--local-rank=${local_rank}";
  if (spelling == "underscore") return "--local_rank=${local_rank}";
  throw UsageError("--legacy-local-rank " + spelling + ": give dash or underscore, as the script expects");
}

launcher::KeepMemory keep_memory(const std::string& given) {
  using launcher::KeepMemory;
  if (given == "shadow") return KeepMemory::Shadow;
  return flag_value(given).value_or(false) ? KeepMemory::Yes : KeepMemory::No;
}

launcher::ProgramKind program_kind(const GivenOptions& given, launcher::CompatibilityMode compatibility) {
  using launcher::ProgramKind;
  if (given.run_path) return ProgramKind::RunPath;
  if (given.module && given.no_python) {
    throw UsageError("--module and --no-python contradict each other; choose one");
  }
  if (given.module) return ProgramKind::Module;
  if (given.no_python) return ProgramKind::Direct;
  return compatibility == launcher::CompatibilityMode::Torchrun ? ProgramKind::Script : ProgramKind::Guess;
}

// Returns where the programs are that take the stacks of workers, or how to get them.
std::string stack_tools(const Invocation& invocation) {
  std::string python;
  try {
    python = launcher::find_python("", {invocation.own_folder, invocation.python});
  } catch (const launcher::ProgramError&) {
    // Workers need no Python.
  }
  const auto [py_spy, eu_stack] = launcher::find_stack_tools(python);
  return "stacks of workers, Python: " + (py_spy.empty() ? launcher::kGetPySpy : py_spy) +
         "\nstacks of workers, native: " + (eu_stack.empty() ? launcher::kGetEuStack : eu_stack) + "\n";
}

// Returns the page or script to print instead of starting a job, if one was asked for.
std::optional<std::string> text_to_print(const GivenOptions& given, const Options& options,
                                         const Invocation& invocation) {
  if (given.version) return kVersion;
  if (given.print == "versions") return std::string(kVersion) + kCopiedIn + stack_tools(invocation);
  if (given.print == "man") return man_page(options, DDPRUN_VERSION);
  if (!given.print_completion.empty()) return completion_script(options, invocation.name());
  if (given.make_secret.empty()) return std::nullopt;
  rendezvous::make_secret_file(given.make_secret);
  return given.make_secret + ": a new secret; copy it to each node, and give --secret " + given.make_secret +
         " there\n";
}

// Slurm binds a task to the CPUs that were asked for it, which is one by default.
void warn_of_few_cpus(int workers) {
  const int cpus = usable_cpus();
  if (workers <= cpus || cpus >= sysconf(_SC_NPROCESSORS_ONLN) || !getenv("SLURM_STEP_ID")) return;
  const std::string share = cpus == 1 ? " share 1 CPU" : " share " + std::to_string(cpus) + " CPUs";
  fprintf(stderr,
          "ddprun: %d workers%s, since Slurm lets this task use no more; ask for --exclusive or --cpus-per-task=%d\n",
          workers, share.c_str(), workers);
}

// conda's base environment is active in many shells where another Python comes first in PATH.
void warn_of_other_python(const std::string& python) {
  const char* const given = getenv("PYTHON_EXEC");
  const char* const conda = getenv("CONDA_PREFIX");
  if ((given && *given) || !conda || python != std::string(conda) + "/bin/python") return;
  const auto in_path = launcher::find_in_path("python3");
  std::error_code error;
  if (!in_path ||
      std::filesystem::equivalent(in_path->substr(0, in_path->rfind('/')), std::string(conda) + "/bin", error))
    return;
  fprintf(stderr, "ddprun: Python is %s, as CONDA_PREFIX says; in PATH it is %s, which PYTHON_EXEC=%s chooses\n",
          python.c_str(), in_path->c_str(), in_path->c_str());
}

// Says what the options are that the platform's words mean.
void log_platform(const FromPlatform& platform) {
  if (platform.platform.empty()) return;
  const std::string workers = platform.workers ? " --nproc-per-node " + std::to_string(*platform.workers) : "";
  fprintf(stderr, "ddprun: from %s:%s%s\n", platform.platform.c_str(), platform.options.c_str(), workers.c_str());
}

StartOnAll start_on_all(const FromPlatform& platform, const std::vector<std::string>& arguments,
                        const Invocation& invocation) {
  StartOnAll start{platform.platform, platform.start_on_all};
  start.command.push_back(invocation.file);
  start.command.insert(start.command.end(), arguments.begin(), arguments.end());
  return start;
}

StartOnHosts start_on_hosts(launcher::HeadConfig head, const GivenOptions& given, const Arguments& split,
                            const std::vector<std::string>& arguments, const Invocation& invocation) {
  if (!split.program) throw SyntaxError("no program given: nothing to run");
  if (!given.stdin_reader.empty() && given.stdin_reader != "none") {
    throw UsageError("--stdin " + given.stdin_reader + ": workers on other hosts have no stdin; leave it out");
  }
  const auto chooses_slots = [](const launcher::Host& host) { return !host.chosen_slots.empty(); };
  if (given.gpus && std::any_of(head.hosts.begin(), head.hosts.end(), chooses_slots)) {
    throw UsageError("--gpus and slots in --include or --exclude contradict each other; give one of them");
  }
  head.header.arguments = arguments;
  head.header.called_as = invocation.name();
  head.header.own_folder = invocation.own_folder;
  head.header.python = invocation.python;
  head.header.shutdown_timeout = std::chrono::seconds(given.shutdown_timeout);
  // A head that is out of reach is no sooner lost than a node.
  const auto silence = std::chrono::ceil<std::chrono::seconds>(lost_after(given.nodes));
  head.header.silence = std::clamp(silence, launcher::OnHostCore::kLeastSilence, std::chrono::seconds(1'000'000));
  head.may_restart = given.max_restarts > 0;
  return {std::move(head), *split.program, given.logs.report_file};
}

// Puts what the head says of this host where the user's options are. It has checked that they say nothing else.
FromPlatform take_place(const launcher::HostPlace& place, GivenOptions& given) {
  fill_from_head(given.nodes, place);
  if (place.workers) given.nproc_per_node = std::to_string(*place.workers);
  if (!place.gpus.empty()) given.gpus = place.gpus;
  return {.secret = place.secret};
}

// Variables of ddprun 0.2 that have torchrun's prefix now. A setting must not be lost without a word.
void refuse_old_variables() {
  for (const std::string name : {"GLOO", "KEEP_MEMORY", "LAUNCH_AGENT"}) {
    const char* const value = getenv(("DDPRUN_" + name).c_str());
    if (value && *value) throw UsageError("DDPRUN_" + name + " is called PET_" + name + " now; set that variable");
  }
}

// torchrun reads the default of --shutdown-timeout from the environment too.
void read_shutdown_timeout(GivenOptions& given) {
  const char* const seconds = getenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
  if (!seconds || !*seconds) return;
  given.shutdown_timeout = parse_count(seconds);
  if (given.shutdown_timeout >= 0) return;
  throw UsageError(std::string("TORCH_ELASTIC_SHUTDOWN_TIMEOUT=") + seconds + ": give a number of seconds");
}

launcher::LogSettings log_settings(const GivenOptions& given) {
  try {
    return {launcher::log_level_from(given.log_level), launcher::log_format_from(given.log_format)};
  } catch (const rendezvous::Error& error) {
    throw UsageError(std::string("--log-level, --log-format: ") + error.what());
  }
}

// Puts the program, what runs it, and its arguments into the config.
void take_program(Arguments& split, const GivenOptions& given, const Invocation& invocation,
                  const launcher::ProgramPlaces& places, launcher::LaunchConfig& config) {
  const std::string legacy = legacy_argument(given);
  config.program = launcher::find_program(*split.program, program_kind(given, invocation.compatibility), places);
  if (invocation.caller && !invocation.caller->program_name.empty()) {
    config.program.name = invocation.caller->program_name;
  }
  config.program_args = std::move(split.program_args);
  if (!legacy.empty()) config.program_args.insert(config.program_args.begin(), legacy);
  const bool is_python = config.program.prefix.size() > 1;
  if (!given.preload.empty() && !is_python) {
    throw UsageError("--preload " + given.preload + ": '" + *split.program + "' is not run by Python; leave it out");
  }
  config.preload = given.preload;
  config.preload_timeout = std::chrono::seconds(given.preload_timeout);
}

}  // namespace

ParsedOptions parse_options(const std::vector<std::string>& arguments, const Invocation& invocation) {
  GivenOptions given;
  read_shutdown_timeout(given);
  // Read the options, and print a page if that is all that was asked for.
  Declaration declaration;
  declare(declaration, given);
  const Options& options = declaration.options();
  Arguments split = split_arguments(arguments, options);
  // --help comes before the values are converted: a wrong variable must not keep anybody from reading the page.
  const auto& words = split.options;
  if (std::find(words.begin(), words.end(), "--help") != words.end()) return JustPrint{help_page(options)};
  if (!invocation.place) refuse_old_variables();
  declaration.parse(words);
  const launcher::ProgramPlaces places = {invocation.own_folder, invocation.python};
  if (auto text = text_to_print(given, options, invocation)) return JustPrint{std::move(*text)};

  // Ask the platform for what nobody has said.
  const launcher::Surroundings here = launcher::own_surroundings();
  if (given.print == "environment") return JustPrint{environment_page(given.nodes, given.nproc_per_node, here)};
  if (!invocation.place) {
    if (const auto head = resolve_hosts(given.hosts, given.nodes, given.nproc_per_node)) {
      return start_on_hosts(*head, given, split, arguments, invocation);
    }
  }
  const FromPlatform platform =
      invocation.place ? take_place(*invocation.place, given) : fill_from_platform(given.nodes, here);
  if (given.print == "bindings")
    return JustPrint{launcher::bindings_table(to_config(given, platform, places).bindings)};
  if (!split.program) throw SyntaxError("no program given: nothing to run");
  if (!platform.start_on_all.empty()) return start_on_all(platform, arguments, invocation);
  log_platform(platform);

  // Resolve the log's settings and the job's.
  Launch launch;
  launch.log = log_settings(given);
  launch.config = to_config(given, platform, places);
  warn_of_few_cpus(launch.config.workers);
  launch.config.compatibility = invocation.compatibility;
  launch.config.agreed_secret_first = invocation.place.has_value();
  launch.config.is_told_elsewhere = invocation.place && invocation.place->node_rank != 0;
  launch.config.to_head = invocation.to_head;
  launch.config.launcher_pid = getpid();
  take_program(split, given, invocation, places, launch.config);
  if (launch.config.program.prefix.size() > 1) warn_of_other_python(launch.config.program.path);
  launch.config.serve_gloo = given.gloo == "ddp";
  launch.config.keep_memory = keep_memory(given.keep_memory);
  launch.config.job.survivors_stay = survivors_stay(given, launch.config);
  return launch;
}

}  // namespace ddp::apps
