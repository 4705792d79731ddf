// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/commands/agents.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "apps/ddprun/commands/head_note.hpp"
#include "apps/ddprun/commands/table.hpp"
#include "apps/ddprun/options/usage_error.hpp"
#include "launcher/local/agent_socket.hpp"
#include "rendezvous/agent_client.hpp"
#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/error.hpp"

namespace ddp::apps {
namespace {

std::string state_request() { return encode(rendezvous::AgentRequest{.ask = "state"}); }

// Returns the sockets in the folder, in a fixed order; none if there is no folder. Coordinators have their journals
// there, too.
std::vector<std::string> sockets_in(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error, gone;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const bool is_hidden = entry->path().filename().string().starts_with('.');  // it does not listen yet
    if (!is_hidden && std::filesystem::is_socket(entry->symlink_status(gone))) paths.push_back(entry->path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string list_of(const std::vector<FoundJob>& jobs) {
  std::string text;
  for (const FoundJob& job : jobs)
    text += (text.empty() ? "" : ", ") + job.view.job + " (pid " + std::to_string(job.view.pid) + ")";
  return text;
}

// An agent that is asked for its state.
struct Asked {
  std::string path;
  rendezvous::Descriptor connection;  // open while the answer is awaited
  std::string answer, why_not;
  bool is_gone = false;
  pid_t peer = 0;
};

// Does `what`, and notes why that fails.
template <typename What>
void attempt(Asked& asked, What what) {
  try {
    what();
  } catch (const rendezvous::Error& error) {
    asked.is_gone = error.code() == rendezvous::ErrorCode::PeerLost;
    asked.why_not = error.what();
    asked.connection.close();
  }
}

// Returns the process that listens at the other end; 0 if it has no number in this pid namespace.
pid_t peer_of(const rendezvous::Descriptor& connection) {
  ucred peer = {};
  socklen_t size = sizeof peer;
  return getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

Asked ask(std::string path) {
  constexpr std::chrono::milliseconds kForItsPlace{100};
  Asked asked{.path = std::move(path), .connection = {}, .answer = {}, .why_not = {}};
  attempt(asked, [&] {
    asked.connection = rendezvous::send_to_agent(asked.path, state_request(), kForItsPlace);
    asked.peer = peer_of(asked.connection);
  });
  return asked;
}

// Takes in answers as they come, so that agents that are stopped cost one wait together.
void wait_for_answers(std::vector<Asked>& all, std::chrono::steady_clock::time_point until) {
  for (;;) {
    std::vector<pollfd> waits;
    std::vector<Asked*> waiting;
    for (Asked& asked : all) {
      if (!asked.connection) continue;
      waits.push_back({asked.connection.get(), POLLIN, 0});
      waiting.push_back(&asked);
    }
    if (waits.empty()) return;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    const int ready = left > 0 ? poll(waits.data(), waits.size(), static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    for (std::size_t i = 0; i < waits.size(); ++i) {
      if (ready > 0 && waits[i].revents == 0) continue;
      Asked& asked = *waiting[i];
      attempt(asked, [&] {
        if (ready <= 0) rendezvous::throw_no_answer(asked.path);
        asked.answer = rendezvous::payload_of(rendezvous::receive_answer(asked.connection.get(), asked.path).text);
        asked.connection.close();
      });
    }
  }
}

// Returns the end of the pipe through which an agent answers.
rendezvous::Descriptor begin_asking(const std::string& socket, const std::string& ask) {
  auto [answer, descriptors] = rendezvous::ask_agent(socket, rendezvous::AgentRequest{.ask = ask});
  if (descriptors.empty()) throw rendezvous::Error(rendezvous::ErrorCode::System, answer.error);
  return std::move(descriptors.front());
}

}  // namespace

std::string ask_state(const std::string& socket) {
  return rendezvous::payload_of(rendezvous::ask_agent(socket, state_request()).text);
}

std::string ask_at_length(const std::string& socket, const std::string& ask, std::chrono::milliseconds within) {
  using rendezvous::Error, rendezvous::ErrorCode;
  const auto deadline = std::chrono::steady_clock::now() + within;
  const rendezvous::Descriptor pipe = begin_asking(socket, ask);
  std::string text;
  char buffer[16384];
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd wait = {pipe.get(), POLLIN, 0};
    if (left <= 0 || poll(&wait, 1, static_cast<int>(left)) == 0) {
      throw Error(ErrorCode::Timeout, "no answer in time (is the agent stopped, or its machine overloaded?)");
    }
    const ssize_t size = read(wait.fd, buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(size));
  }
}

AgentAnswers ask_all_agents(const std::string& command) {
  AgentAnswers answers;
  const std::string folder = launcher::agent_socket_folder();
  if (access(folder.c_str(), F_OK) == 0) launcher::make_agent_socket_folder();  // whose is it?
  std::vector<Asked> asked;
  answers.elsewhere = jobs_elsewhere(folder, command);
  for (std::string& path : sockets_in(folder)) asked.push_back(ask(std::move(path)));
  wait_for_answers(asked, std::chrono::steady_clock::now() + rendezvous::kAnswerWithin);
  for (const Asked& one : asked) {
    if (one.is_gone) {  // every process of its ddprun was killed at once
      unlink(one.path.c_str());
    } else if (!one.why_not.empty()) {
      print_line(stderr, command + ": " + one.why_not);
      answers.is_complete = false;
    } else if (const auto view = launcher::agent_view(one.answer)) {
      answers.all.push_back({one.answer, *view, one.path, one.peer});
    } else {
      print_line(stderr, command + ": " + one.path + ": " + one.answer);
      answers.is_complete = false;
    }
  }
  return answers;
}

FoundJob find_job(const std::string& command, const std::string& name) {
  std::vector<FoundJob> all, meant;
  const AgentAnswers answers = ask_all_agents(command);
  std::string elsewhere;
  for (const std::string& job : answers.elsewhere) elsewhere += "; " + job;
  for (const AgentAnswers::Answer& answer : answers.all) {
    const bool is_of_here = answer.view.agent_pid == answer.peer || answer.view.agent_pid == 0;  // 0: an older release
    all.push_back({answer.view, answer.socket, is_of_here});
  }
  for (const FoundJob& job : all) {
    if (job.view.job.starts_with(name) || std::to_string(job.view.pid) == name) meant.push_back(job);
  }
  if (all.empty()) {
    const std::string any = "; a job of several nodes is seen on each of them";
    throw UsageError(command + ": this user has no job on this machine" + (elsewhere.empty() ? any : elsewhere));
  }
  if (meant.empty()) {
    throw UsageError(command + ": no job is called " + name + "; there are " + list_of(all) + elsewhere);
  }
  const std::string& epoch = meant.front().view.epoch;
  const bool are_of_one_job = !epoch.empty() && std::all_of(meant.begin(), meant.end(), [&](const FoundJob& job) {
    return job.view.epoch == epoch;
  });
  if (meant.size() > 1 && !are_of_one_job) {
    throw UsageError(command + ": which job? Give the beginning of its id, or its pid, of " + list_of(meant));
  }
  return meant.front();
}

FoundJob find_job_with_processes(const std::string& command, const std::string& name) {
  FoundJob job = find_job(command, name);
  if (!job.has_pids_of_here) {
    throw UsageError(command + ": the job " + job.view.job +
                     " runs in another pid namespace, such as a container's: its pids are other processes' here. Run " +
                     "this command there");
  }
  return job;
}

}  // namespace ddp::apps
