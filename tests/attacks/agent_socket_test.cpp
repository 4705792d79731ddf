// SPDX-License-Identifier: BSD-3-Clause
// What is asked at an agent's socket: by another user, without sense, too often, and by programs that do not read the
// answer. The requests about memory to keep are in kept_memory_test.cpp.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "rendezvous/agent_client.hpp"
#include "rendezvous/base/error.hpp"
#include "tests/attacks/asked_job.hpp"
#include "tests/support/other_user.hpp"

using Catch::Matchers::Contains;
using ddp::rendezvous::AgentRequest;
using ddp::rendezvous::ask_agent;
using ddp::rendezvous::Descriptor;
using ddp::rendezvous::DescriptorMessage;
using ddp::rendezvous::FrameKind;
using namespace ddp::testing;

namespace {

std::string read_all(const Descriptor& pipe) {
  std::string text;
  char buffer[4096];
  for (ssize_t size; (size = read(pipe.get(), buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(size));
  }
  return text;
}

}  // namespace

TEST_CASE("agent socket: another user is answered nothing, whatever it asks", "[attacks][integration]") {
  const AskedJob job;
  for (const std::string what : {"state", "stacks", "job", "job_stacks", "job_stop", "job_save:USR1", "await"}) {
    CAPTURE(what);
    std::string answer = "none";
    as_other_user([&] {
      try {
        answer = job.ask(what);
      } catch (const ddp::rendezvous::Error&) {
      }
    });
    CHECK(answer == "none");
  }
  const Result listed = [] {
    Result seen;
    as_other_user([&] { seen = run(ddprun_raw({"ps"})); });
    return seen;
  }();
  CHECK_THAT(listed.out, !Contains("fake_worker"));
  CHECK(job.serves());
  CHECK(children_of(agent_of(job.process)).size() == 2);
}

TEST_CASE("agent socket: words that are no question of a job go no further than the agent", "[attacks][integration]") {
  const AskedJob job;
  for (const std::string what :
       {"job_", "jobs", "job_gold", "job_save", "job_save:", "job_save:KILL", "job_save:STOP", "job_save:TERM",
        "job_save:-1", "job_save:9", "job_stop ", "job_stillness", "job_verdict", "job_\x1b[2J"}) {
    CAPTURE(what);
    CHECK_THAT(job.ask(what), Contains("error") && Contains("nothing can be asked of a job by this name"));
  }
  CHECK_THAT(job.ask("job_" + std::string(60'000, 'x')), Contains("error"));
  CHECK(job.serves());
  CHECK(children_of(agent_of(job.process)).size() == 2);  // no worker got a signal
}

TEST_CASE("agent socket: programs that do not read their answers hold up nobody, and have a limit",
          "[attacks][integration]") {
  const AskedJob job;
  std::vector<DescriptorMessage> unread;
  for (int i = 0; i < 64; ++i) unread.push_back(ask_agent(job.socket, encode(AgentRequest{.ask = "job"})));
  CHECK(job.serves());
  for (const DescriptorMessage& answer : unread) {
    const bool is_refused = answer.text.find("too many programs ask at the same time") != std::string::npos;
    CHECK(is_refused == answer.descriptors.empty());
    if (!is_refused) CHECK_THAT(read_all(answer.descriptors[0]), Contains("\"nodes\""));
  }
  unread.clear();
  CHECK_THAT(run(ddprun_raw({"ps", std::to_string(job.process.pid())})).out, Contains("2 workers on 1 node"));
}

TEST_CASE("agent socket: programs that end before their answers come do the job no harm", "[attacks][integration]") {
  const AskedJob job;
  for (int i = 0; i < 40; ++i) {
    for (const char* what : {"job", "job_stacks", "stacks"}) {
      ask_agent(job.socket, encode(AgentRequest{.ask = what}));
    }
  }
  CHECK(job.serves());
  CHECK(children_of(agent_of(job.process)).size() >= 2);
}

TEST_CASE("agent socket: requests that are no frame with one message are refused in words", "[attacks][integration]") {
  const AskedJob job;
  const auto framed = [](const std::string& json) { return to_frame(FrameKind::AgentRequest, json); };
  for (const std::string& request :
       {std::string("job"), framed("{"), framed("[]"), std::string("\0", 1), framed("{}"), framed(R"({"ask":7})"),
        framed(R"({"ask":"job","layout":"1"})"), framed(std::string(5000, '[')), framed("").substr(0, 5),
        to_frame(FrameKind::AgentAnswer, "{}"), to_frame(FrameKind::Beat, ""), std::string("\xff\xff\xff\xffq\1{}"),
        std::string(R"({"version":1,"ask":"job"})")}) {
    CHECK_THAT(ask_agent(job.socket, request).text, Contains("error") && Contains("the request is "));
  }
  CHECK(job.serves());
}
