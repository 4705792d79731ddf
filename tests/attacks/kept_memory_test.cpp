// SPDX-License-Identifier: BSD-3-Clause
// Requests for memory to keep (--keep-memory): from another user, and from workers that ask for what they cannot have.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "rendezvous/agent_client.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/kept/arena.hpp"
#include "tests/attacks/asked_job.hpp"
#include "tests/support/other_user.hpp"

using Catch::Matchers::Contains;
using ddp::rendezvous::AgentRequest;
using ddp::rendezvous::ask_agent;
using ddp::rendezvous::DescriptorMessage;
using ddp::rendezvous::FrameKind;
using namespace ddp::testing;

namespace {

// Its workers keep nothing themselves.
struct KeepingJob : AskedJob {
  explicit KeepingJob(const Words& options = {"--keep-memory"}) : AskedJob(options) {}

  // Asks as this worker. `what` are the members that follow.
  DescriptorMessage ask(std::size_t worker, const std::string& what) const {
    return ask_agent(socket, to_frame(FrameKind::AgentRequest, "{\"ask\":\"keep\",\"incarnation\":\"" +
                                                                   incarnation_of(worker) + "\"," + what + "}"));
  }
  DescriptorMessage ask(std::size_t worker, const std::string& name, const std::string& bytes) const {
    return ask(worker, "\"layout\":" + std::to_string(ddp::rendezvous::kKeptVersion) + ",\"name\":\"" + name +
                           "\",\"bytes\":" + bytes);
  }
};

}  // namespace

TEST_CASE("kept memory: no worker gets an absurd size or a name of bad bytes", "[attacks][integration]") {
  const KeepingJob job;
  for (const std::string bytes : {"0", "-4096", "1", "4097"}) {
    CAPTURE(bytes);
    const DescriptorMessage answer = job.ask(0, "a", bytes);
    CHECK_THAT(answer.text, Contains("error") && Contains("whole pages"));
    CHECK(answer.descriptors.empty());
  }
  for (const std::string bytes : {"1.5", "\"4096\"", "null", "9223372036854775808"}) {
    CAPTURE(bytes);
    const DescriptorMessage answer = job.ask(0, "a", bytes);
    CHECK_THAT(answer.text, Contains("error") && Contains("the request is bytes: "));
    CHECK(answer.descriptors.empty());
  }
  for (const std::string bytes : {"4611686018427387904", "9223372036854771712", "70368744177664"}) {
    CAPTURE(bytes);
    CHECK_THAT(job.ask(0, "a", bytes).text, Contains("error") && Contains("left"));
  }
  for (const std::string& name :
       {std::string(), std::string(65, 'a'), std::string("../a"), std::string("a/b"), std::string("a b"),
        std::string("\\u0000"), std::string("\\u001b[2J"), std::string("ä")}) {
    CAPTURE(name);
    CHECK_THAT(job.ask(0, name, "4096").text, Contains("error") && Contains("a name of memory to keep has"));
  }
  CHECK_THAT(job.ask(0, R"("layout":1,"name":"a","bytes":4096)").text, Contains("keeps memory of another layout"));
  CHECK_THAT(job.ask(0, R"("name":"a","bytes":4096)").text, Contains("another layout"));
  CHECK(job.ask(0, "a", "4096").descriptors.size() == 1);  // the agent still serves
}

TEST_CASE("kept memory: the agent's number of names has a limit, and a worker gets each once",
          "[attacks][integration]") {
  const KeepingJob job;
  for (int i = 0; i < 16; ++i) CHECK(job.ask(0, "name" + std::to_string(i), "4096").descriptors.size() == 1);
  CHECK_THAT(job.ask(0, "one_more", "4096").text, Contains("no more than 16 names"));
  CHECK_THAT(job.ask(0, "name3", "4096").text, Contains("has the memory \\\"name3\\\" already"));
  CHECK(job.ask(1, "name3", "4096").descriptors.size() == 1);
}

TEST_CASE("kept memory: a worker gets its own and not its neighbour's, and cannot cut it", "[attacks][integration]") {
  const KeepingJob job;
  const DescriptorMessage first = job.ask(0, "model", "8192"), second = job.ask(1, "model", "8192");
  REQUIRE(first.descriptors.size() == 1);
  REQUIRE(second.descriptors.size() == 1);
  const int memory = first.descriptors[0].get();
  REQUIRE(pwrite(memory, "mine", 4, 4096) == 4);
  char bytes[4] = {1, 1, 1, 1};
  REQUIRE(pread(second.descriptors[0].get(), bytes, 4, 4096) == 4);
  CHECK(std::string(bytes, 4) == std::string(4, '\0'));
  CHECK(ftruncate(memory, 0) == -1);
  CHECK(ftruncate(memory, 1 << 30) == -1);
  CHECK(fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE) == -1);
  CHECK_THAT(ask_agent(job.socket, AgentRequest{.ask = "keep", .incarnation = "0", .name = "model"}).answer.error,
             Contains("no worker of this round has this incarnation"));
}

TEST_CASE("kept memory: what a worker has kept is shown to it alone, and for reading only", "[attacks][integration]") {
  const KeepingJob job;
  const auto look = [&](const std::string& incarnation, const std::string& name) {
    return ask_agent(job.socket, AgentRequest{.ask = "kept", .incarnation = incarnation, .name = name});
  };
  const std::string zero = job.incarnation_of(0);
  const std::string one = job.incarnation_of(1);
  CHECK(look(zero, "model").descriptors.empty());
  REQUIRE(job.ask(0, "model", "8192").descriptors.size() == 1);
  const ddp::rendezvous::AgentReply seen = look(zero, "model");
  REQUIRE(seen.descriptors.size() == 1);
  CHECK(pwrite(seen.descriptors[0].get(), "x", 1, 0) == -1);
  CHECK(look(one, "model").descriptors.empty());
  for (const std::string& name :
       {std::string(), std::string("other"), std::string("../model"), std::string("model\0", 6)})
    CHECK(look(zero, name).descriptors.empty());
  CHECK_THAT(look("0", "model").answer.error, Contains("no worker of this round has this incarnation"));
}

TEST_CASE("kept memory: another user gets none", "[attacks][integration]") {
  const KeepingJob job;
  const AgentRequest request{.ask = "keep", .incarnation = job.incarnation_of(0), .name = "model", .bytes = 4096};
  std::string answer;
  as_other_user([&] {
    try {
      answer = ask_agent(job.socket, request).answer.error;
    } catch (const ddp::rendezvous::Error& error) {
      answer = error.what();
    }
  });
  CHECK_THAT(answer, Contains("cannot connect: Permission denied") || Contains("is it another user's?"));
}

TEST_CASE("kept memory: without --keep-memory nobody gets any", "[attacks][integration]") {
  const KeepingJob job(Words{});
  const DescriptorMessage answer = job.ask(0, "model", "4096");
  CHECK_THAT(answer.text, !Contains("error"));
  CHECK(answer.descriptors.empty());
}
