// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/report/node_facts.hpp"

#include <gnu/libc-version.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <sstream>

#include "rendezvous/link/printable.hpp"

namespace ddp::launcher {
namespace {

constexpr std::size_t kMaxValueBytes = 1000, kMaxVariables = 1000;
constexpr char kNotShown[] = "(not shown)";

// Words in the names of variables with secrets. Some are parts of harmless names, too: better those than a secret.
constexpr const char* kSecretWords[] = {"SECRET", "TOKEN",   "PASSW",  "PASSPHRASE", "CRED", "APIKEY", "API_KEY",
                                        "AUTH",   "PRIVATE", "COOKIE", "SIGNATURE",  "_KEY", "KEY_",   "SESSION",
                                        "PWD_",   "_PWD",    "_PAT_",  "CERT",       "SAS_", "_DSN",   "WEBHOOK"};

// Hides who logs in where a value has URLs such as https://user:word@host/.
std::string without_logins(std::string value) {
  for (std::size_t at = 0; (at = value.find("://", at)) != std::string::npos;) {
    at += 3;
    const std::size_t end = value.find_first_of("/ \t\n\"'", at);
    const std::size_t login = value.substr(0, end).rfind('@');
    if (login == std::string::npos || login < at) continue;
    value.replace(at, login - at, kNotShown);
  }
  return value;
}

// Hides X in the words "--password=X" and "--api-key", "X".
void hide_secrets(std::vector<std::string>& words) {
  bool is_value_of_secret = false;
  for (std::string& word : words) {
    const std::size_t equals = word.find('=');
    const bool is_option = word.starts_with('-'), is_secret = is_secret_name(word.substr(0, equals));
    if (is_value_of_secret && !word.starts_with("--")) {
      word = kNotShown;
    } else if (is_secret && equals != std::string::npos) {
      word.replace(equals + 1, std::string::npos, kNotShown);
    }
    is_value_of_secret = is_option && is_secret && equals == std::string::npos;
  }
}

// Returns a text without secrets; it may be a command line, as SUDO_COMMAND is.
std::string shown_value(const std::string& value) {
  std::istringstream text(rendezvous::printable_line(value));
  std::vector<std::string> words;
  for (std::string word; std::getline(text, word, ' ');) words.push_back(word);
  hide_secrets(words);
  std::string shown;
  for (const std::string& word : words) shown += (&word == words.data() ? "" : " ") + word;
  return rendezvous::cut_line(without_logins(shown), kMaxValueBytes);
}

std::string first_value(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t begin = line.find_first_not_of(" \t:=", key.size());
    return begin == std::string::npos ? "" : rendezvous::printable_line(line.substr(begin));
  }
  return "";
}

std::vector<std::string> environment() {
  std::vector<std::string> shown;
  for (char** variable = environ; *variable != nullptr && shown.size() < kMaxVariables; ++variable) {
    shown.push_back(shown_variable(*variable));
  }
  std::sort(shown.begin(), shown.end());
  return shown;
}

std::vector<std::string> command_of(const LaunchConfig& config) {
  std::vector<std::string> words = config.program.prefix;
  if (words.empty()) words.push_back(config.program.path);
  words.insert(words.end(), config.program_args.begin(), config.program_args.end());
  for (std::string& word : words) word = shown_value(word);
  hide_secrets(words);
  return words;
}

}  // namespace

bool is_secret_name(const std::string& name) {
  std::string upper = name;
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return c == '-' ? '_' : std::toupper(c); });
  if (upper.ends_with("_PAT")) return true;  // a personal access token; not the beginning of LD_LIBRARY_PATH
  if (upper == "KEY" || upper.ends_with("PASS")) return true;
  return std::any_of(std::begin(kSecretWords), std::end(kSecretWords),
                     [&upper](const char* word) { return upper.find(word) != std::string::npos; });
}

std::string shown_variable(const std::string& variable) {
  const std::size_t equals = variable.find('=');
  if (equals == std::string::npos) return rendezvous::printable_line(variable);
  const std::string name = rendezvous::printable_line(variable.substr(0, equals));
  if (name == "OLDPWD") return name + variable.substr(equals);
  if (is_secret_name(name)) return name + "=" + kNotShown;
  return name + "=" + shown_value(variable.substr(equals + 1));
}

rendezvous::JsonObject node_facts(const LaunchConfig& config, const std::string& host) {
  utsname system = {};
  uname(&system);
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const bool is_known = sched_getaffinity(0, sizeof allowed, &allowed) == 0;
  rendezvous::JsonObject json;
  json.text("host", host).text("ddprun", DDPRUN_VERSION);
  json.text("kernel", std::string(system.sysname) + " " + system.release + " " + system.machine);
  json.text("system", first_value("/etc/os-release", "PRETTY_NAME")).text("libc", gnu_get_libc_version());
  json.text("processor", first_value("/proc/cpuinfo", "model name"));
  json.number("cpus", sysconf(_SC_NPROCESSORS_ONLN));
  json.number("allowed_cpus", is_known ? std::optional<std::int64_t>(CPU_COUNT(&allowed)) : std::nullopt);
  json.text("memory", first_value("/proc/meminfo", "MemTotal"));
  json.text("free_memory", first_value("/proc/meminfo", "MemAvailable"));
  json.number("workers", config.workers).number("min_nodes", config.job.min_nodes);
  json.number("max_nodes", config.job.max_nodes).number("max_restarts", config.job.max_restarts);
  json.json("command", rendezvous::json_list(command_of(config)));
  return json.json("environment", rendezvous::json_list(environment()));
}

}  // namespace ddp::launcher
