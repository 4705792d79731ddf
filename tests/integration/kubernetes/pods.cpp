// SPDX-License-Identifier: BSD-3-Clause
#include "tests/integration/kubernetes/pods.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <stdexcept>
#include <utility>

namespace ddp::testing {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

// From the end of a pod to the start of the one that replaces it: what an idle kubelet takes for a new pod whose image
// is there. The controller of Jobs waits longer, from 10 s on.
constexpr std::chrono::seconds kReplacement{2};
constexpr int kLookEvery = 10;      // ms between looks at pods and logs
constexpr std::size_t kLine = 128;  // bytes of each line of /etc/hosts

// Makes a pod of the words that follow: name, size of /dev/shm, /etc/hosts, log.
constexpr char kContainer[] =
    "hostname \"$1\" && mount -t tmpfs -o \"size=$2\" shm /dev/shm && mount --bind \"$3\" /etc/hosts && log=$4 && "
    "shift 4 && exec \"$@\" >>\"$log\" 2>&1";
const Words kNamespaces = {"unshare", "--pid", "--fork", "--kill-child", "--mount", "--uts", "--mount-proc"};

json play(const std::string& manifest, const std::string& uid) {
  const Result result = run({"python3", CONTROLLERS, manifest, uid});
  if (count(result.err, "No module named 'yaml'") != 0) skip("Debian's package python3-yaml is needed");
  if (result.code != 0) throw std::runtime_error(result.err);
  return json::parse(result.out);
}

// Returns the manifest's command, with the programs of the test.
Words command_of(const json& spec, const Words& verbs) {
  Words words = spec.at("command").get<Words>();
  if (words.front() != "ddprun" || words.back() != "train.py") throw std::runtime_error("not a command of ddprun");
  words.front() = DDPRUN_BINARY;
  words.back() = FAKE_WORKER_BINARY;
  return words + verbs;
}

int needed_of(const json& spec, int size) {
  if (!spec.contains("successPolicy")) return size;
  const json& rules = spec.at("successPolicy").at("rules");
  if (rules.size() != 1 || rules[0].size() != 1) throw std::runtime_error("this success policy is not played");
  return rules[0].at("succeededCount").get<int>();
}

}  // namespace

PodJob::PodJob(const Hosts& hosts, const std::string& manifest, Words verbs, const std::vector<Service>& services)
    : hosts_(hosts), verbs_(std::move(verbs)), names_(folder_ / "hosts") {
  const Words probe = hosts_.on(0, kNamespaces + Words{"mount", "-t", "tmpfs", "shm", "/dev/shm"});
  if (const Result result = run(probe); result.code != 0) skip("pods cannot be made here: " + result.err);
  const json job = play(manifest, uid());
  spec_ = job.at("spec");
  if (spec_.at("podReplacementPolicy") != "Failed")
    throw std::runtime_error("pods are replaced before they have ended");
  for (const json& pod : job.at("pods")) indexes_.emplace_back().spec = pod;
  needed_ = needed_of(spec_, size());
  for (int host = 0; host < hosts_.count(); ++host) free_hosts_.push_back(host);
  for (const Service& service : services) std::erase(free_hosts_, service.host);
  names_fd_ = open(names_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  name(0, "127.0.0.1 localhost");
  for (int index = 0; index < size(); ++index) name(index + 1, "");
  for (std::size_t i = 0; i < services.size(); ++i) {
    name(size() + 1 + static_cast<int>(i), services[i].address + " " + services[i].name);
  }
}

PodJob::~PodJob() { close(names_fd_); }

int PodJob::ranks() const {
  int ranks = 0;
  for (const Index& index : indexes_) ranks += index.spec.at("gpus").get<int>();
  return ranks;
}

int PodJob::pods() const {
  int pods = 0;
  for (const Index& index : indexes_) pods += index.pods;
  return pods;
}

// Writes a line of /etc/hosts. All have the same length, so that no reader finds half of the file.
void PodJob::name(int number, const std::string& line) {
  std::string text = line;
  text.resize(kLine - 1, ' ');
  text += '\n';
  if (pwrite(names_fd_, text.data(), kLine, static_cast<off_t>(kLine) * number) != static_cast<ssize_t>(kLine)) {
    throw std::runtime_error("cannot write " + names_);
  }
}

void PodJob::create() {
  for (int index = 0; index < size(); ++index) start(index);
}

void PodJob::publish() {
  publishes_ = true;
  for (const auto& [index, pod] : running()) {
    const json& spec = indexes_[static_cast<std::size_t>(index)].spec;
    name(index + 1, Hosts::address(pod->host) + " " + spec.at("dns").get<std::string>() + " " +
                        spec.at("host").get<std::string>());
  }
}

void PodJob::start(int number) {
  Index& index = indexes_[static_cast<std::size_t>(number)];
  if (free_hosts_.empty()) throw std::runtime_error("the test has too few hosts");
  index.start_at.reset();
  const auto pod = std::make_shared<Pod>();
  pod->host = free_hosts_.front();
  free_hosts_.pop_front();
  pod->log = folder_ / ("pod-" + std::to_string(number) + "-" + std::to_string(index.pods++));
  Process::Options options;
  for (const auto& [variable, value] : index.spec.at("environment").items()) {
    options.environment[variable] = value.get<std::string>();
  }
  // What NVIDIA's device plugin brings.
  options.environment["LD_LIBRARY_PATH"] = FAKE_NVML_FOLDER;
  options.environment["FAKE_NVML_GPUS"] = std::to_string(index.spec.at("gpus").get<int>());
  const Words pod_of = {"sh",
                        "-c",
                        kContainer,
                        "sh",
                        index.spec.at("host").get<std::string>(),
                        index.spec.at("shm").get<std::string>(),
                        names_,
                        pod->log};
  pod->process =
      std::make_unique<Process>(hosts_.on(pod->host, kNamespaces + pod_of + command_of(index.spec, verbs_)), options);
  index.pod = pod;
  if (publishes_) publish();
}

std::vector<std::pair<int, std::shared_ptr<PodJob::Pod>>> PodJob::running() const {
  std::vector<std::pair<int, std::shared_ptr<Pod>>> all;
  for (int index = 0; index < size(); ++index) {
    if (const auto& pod = indexes_[static_cast<std::size_t>(index)].pod) all.emplace_back(index, pod);
  }
  return all;
}

void PodJob::kill(int index) { kill(*indexes_.at(static_cast<std::size_t>(index)).pod); }

void PodJob::kill(Pod& pod) {
  pod.is_killed = true;
  for (const pid_t first : children_of(pod.process->pid())) ::kill(first, SIGKILL);
}

void PodJob::tell_all(int signal) {
  for (const auto& [index, pod] : running()) {
    for (const pid_t first : children_of(pod->process->pid())) ::kill(first, signal);
  }
}

void PodJob::terminate(Pod& pod, const Index& index) {
  if (pod.kill_at) return;
  pod.kill_at = Clock::now() + std::chrono::seconds(index.spec.at("grace").get<int>());
  for (const pid_t first : children_of(pod.process->pid())) ::kill(first, SIGTERM);
}

void PodJob::evict(int number) {
  Index& index = indexes_.at(static_cast<std::size_t>(number));
  index.pod->is_disrupted = true;
  terminate(*index.pod, index);
}

AboutFailure PodJob::about(const Pod& pod, const Index& index, int code) const {
  const auto matches = [&](const json& rule) {
    if (rule.contains("onPodConditions")) {
      const json disruption = json::array({json::object({{"type", "DisruptionTarget"}, {"status", "True"}})});
      if (rule["onPodConditions"] != disruption) throw std::runtime_error("no such condition");
      return pod.is_disrupted;
    }
    const json& codes = rule.at("onExitCodes");
    if (codes.at("containerName") != index.spec.at("container")) throw std::runtime_error("no such container");
    const auto& values = codes.at("values");
    const bool is_listed = std::find(values.begin(), values.end(), code) != values.end();
    return (codes.at("operator") == "In") == is_listed;
  };
  for (const json& rule : spec_.at("podFailurePolicy").at("rules")) {
    if (!matches(rule)) continue;
    if (rule.at("action") == "FailJob") return AboutFailure::FailJob;
    return rule.at("action") == "Ignore" ? AboutFailure::Ignore : AboutFailure::Count;
  }
  return AboutFailure::Count;
}

void PodJob::ended(int number, const std::shared_ptr<Pod>& pod) {
  Index& index = indexes_[static_cast<std::size_t>(number)];
  const int of_unshare = pod->process->wait().code;
  const int code = pod->is_killed ? 128 + SIGKILL : of_unshare;  // unshare(1) does not pass SIGKILL on
  free_hosts_.push_back(pod->host);
  index.last_code = code;
  index.pod.reset();
  name(number + 1, "");
  if (complete()) return;  // it was told to end
  index.succeeded = code == 0;
  if (complete()) return end_pods();
  if (index.succeeded || failed_) return;
  const AboutFailure what = about(*pod, index, code);
  if (what == AboutFailure::FailJob) return fail(code);
  if (what == AboutFailure::Count) ++index.failures;
  index.failed = index.failures > spec_.at("backoffLimitPerIndex").get<int>();
  const auto lost = std::count_if(indexes_.begin(), indexes_.end(), [](const Index& each) { return each.failed; });
  if (lost > spec_.at("maxFailedIndexes").get<int>()) return fail(code);
  index.start_at = Clock::now() + kReplacement;
}

void PodJob::fail(int code) {
  failed_ = true;
  code_of_failure_ = code;
  end_pods();
}

void PodJob::end_pods() {
  for (Index& index : indexes_) index.start_at.reset();
  for (const auto& [index, pod] : running()) terminate(*pod, indexes_[static_cast<std::size_t>(index)]);
}

void PodJob::act() {
  for (const auto& [index, pod] : running()) {
    if (pod->kill_at && Clock::now() >= *pod->kill_at) kill(*pod);
    if (const char state = state_of(pod->process->pid()); state == 'Z' || state == 'X') ended(index, pod);
  }
  for (int index = 0; index < size(); ++index) {
    const auto& at = indexes_[static_cast<std::size_t>(index)].start_at;
    if (at && Clock::now() >= *at) start(index);
  }
}

void PodJob::until(const std::function<bool()>& condition) {
  const auto deadline = Clock::now() + kDeadline;
  while (!condition()) {
    if (Clock::now() > deadline) throw std::runtime_error("it does not come true; the pods have written:\n" + logs());
    act();
    poll(nullptr, 0, kLookEvery);
  }
}

bool PodJob::complete() const {
  return std::count_if(indexes_.begin(), indexes_.end(), [](const Index& index) { return index.succeeded; }) >= needed_;
}

std::string PodJob::log(int number) const {
  const int newest = pods_of(number) - 1;
  return read_file(folder_ / ("pod-" + std::to_string(number) + "-" + std::to_string(newest)));
}

std::string PodJob::logs() const {
  std::string all;
  for (int index = 0; index < size(); ++index) {
    for (int pod = 0; pod < pods_of(index); ++pod) {
      const std::string name = "pod-" + std::to_string(index) + "-" + std::to_string(pod);
      all += name + ":\n" + read_file(folder_ / name);
    }
  }
  return all;
}

}  // namespace ddp::testing
