// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/commands/stacks.hpp"

#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "apps/ddprun/commands/agents.hpp"
#include "apps/ddprun/options/usage_error.hpp"
#include "launcher/stacks/stack_json.hpp"
#include "launcher/stacks/stack_report.hpp"
#include "rendezvous/agent_client.hpp"

namespace ddp::apps {
namespace {

constexpr char kAskStacks[] = R"({"version":1,"ask":"stacks"})";
static_assert(rendezvous::kAgentSocketVersion == 1);
constexpr std::chrono::seconds kWithin{9};  // the agent takes seven

// Returns what comes through a pipe until its end, or until the deadline.
std::string read_all(const rendezvous::Descriptor& pipe) {
  const auto deadline = std::chrono::steady_clock::now() + kWithin;
  std::string text;
  char buffer[16384];
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd wait = {pipe.get(), POLLIN, 0};
    if (left <= 0 || poll(&wait, 1, static_cast<int>(left)) == 0) return text;
    const ssize_t size = read(pipe.get(), buffer, sizeof buffer);
    if (size <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(size));
  }
}

int fail(const std::string& job, const std::string& why) {
  fprintf(stderr, "ddprun stacks: the job %s: %s\n", job.c_str(), why.c_str());
  return 1;
}

}  // namespace

int show_stacks(const std::vector<std::string>& arguments) {
  bool as_json = false;
  std::string name;
  for (const std::string& argument : arguments) {
    if (argument == "--json") {
      as_json = true;
    } else if (name.empty() && !argument.empty() && argument[0] != '-') {
      name = argument;
    } else {
      throw SyntaxError("stacks: \"" + argument + "\" is too much (ddprun stacks [JOB] [--json])");
    }
  }
  const auto [job, socket] = find_job("stacks", name);
  const auto answer = rendezvous::ask_agent(socket, kAskStacks);
  if (answer.descriptors.empty()) return fail(job.job, rendezvous::text_in(answer.text, "error").value_or(answer.text));
  const std::string json = read_all(answer.descriptors.front());
  const auto stacks = launcher::stacks_from_json(json);
  if (!stacks) return fail(job.job, "its agent took no stacks in time; is the machine overloaded? Try again");
  fputs((as_json ? json + "\n" : launcher::describe_stacks(*stacks)).c_str(), stdout);
  return 0;
}

}  // namespace ddp::apps
