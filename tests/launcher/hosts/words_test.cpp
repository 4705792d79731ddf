// SPDX-License-Identifier: BSD-3-Clause
// What passes between the head and a host: greeting, frames, header; and how a host is called.
#include <catch2/catch.hpp>

#include "launcher/hosts/launch_line.hpp"
#include "launcher/hosts/passed_variables.hpp"
#include "launcher/hosts/wire/greeting.hpp"
#include "launcher/hosts/wire/messages.hpp"
#include "rendezvous/base/error.hpp"

using namespace ddp::launcher;
using Catch::Matchers::Contains;
using Words = std::vector<std::string>;

namespace {

JobHeader example() {
  JobHeader header;
  header.place = {.nodes = 2,
                  .node_rank = 1,
                  .master_addr = "10.0.0.1",
                  .master_port = 4000,
                  .id = "job",
                  .secret = ddp::rendezvous::Secret::random(),
                  .workers = 3,
                  .gpus = "0,2"};
  header.arguments = {"--tee=3", "train.py", "", "it's \"quoted\"\n", "\xff\xc3\xa9"};
  header.variables = {"A=", "B=x=\x80y"};
  header.folder = "/work";
  header.called_as = "torchrun";
  header.shutdown_timeout = std::chrono::seconds(7);
  header.silence = std::chrono::seconds(8);
  return header;
}

const Words kSshOptions = {"-o", "BatchMode=yes",      "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3",
                           "-o", "ControlMaster=no",   "-o", "ControlPath=none",      "-o", "ExitOnForwardFailure=no",
                           "-o", "RemoteCommand=none", "-T"};

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

template <typename Act>
std::string refusal(Act act) {
  try {
    act();
  } catch (const ddp::rendezvous::Error& error) {
    return error.what();
  }
  return "nothing was refused";
}

}  // namespace

TEST_CASE("greeting: what a login shell prints before it is chatter", "[launcher][unit]") {
  const std::string all =
      "Welcome!\nno newline" + std::string(kGreeting) + "send\nmore\n" + kGreeting + "ready\nhTHE REST";
  Greeting greeting;
  int wants = 0, ready = 0;
  for (const char c : all) {  // a byte at a time
    greeting.add({&c, 1});
    if (ready > 0) continue;
    const auto word = greeting.next();
    wants += std::holds_alternative<Greeting::WantsProgram>(word);
    ready += std::holds_alternative<Greeting::Ready>(word);
  }
  CHECK((wants == 1 && ready == 1));
  CHECK(greeting.take_rest() == "hTHE REST");
  CHECK(greeting.chatter() == "Welcome!\nno newlinemore\n");
}

TEST_CASE("greeting: what a host prints instead of a greeting is kept to the last byte", "[launcher][unit]") {
  Greeting greeting;
  greeting.add("This account is not available");
  CHECK(std::holds_alternative<Greeting::NothingYet>(greeting.next()));
  CHECK(greeting.chatter() == "This account is not available");
}

TEST_CASE("greeting: a host that cannot go on says why", "[launcher][unit]") {
  Greeting greeting;
  greeting.add("x" + std::string(kGreeting) + "cannot use /home/me\n" + kGreeting + "nonsense\n");
  CHECK(std::get<Greeting::Cannot>(greeting.next()).why == "it cannot use /home/me");
  CHECK(std::get<Greeting::Cannot>(greeting.next()).why == "it greets with \"nonsense\"");
}

TEST_CASE("greeting: endless chatter takes no memory, and an endless greeting is refused", "[launcher][unit]") {
  Greeting greeting;
  for (int i = 0; i < 1000; ++i) {
    greeting.add(std::string(1000, 'x'));
    CHECK(std::holds_alternative<Greeting::NothingYet>(greeting.next()));
  }
  CHECK(greeting.chatter().size() < 16'000);
  greeting.add(kGreeting + std::string(10'000, 'y'));
  CHECK(std::holds_alternative<Greeting::Cannot>(greeting.next()));
}

TEST_CASE("job header: comes out as it went in, and no half of it is taken", "[launcher][unit]") {
  const JobHeader header = example();
  const std::string text = to_text(header);
  const JobHeader read = job_header_from(text);
  CHECK(to_text(read) == text);
  CHECK(read.arguments == header.arguments);
  CHECK(read.variables == header.variables);
  CHECK(*read.place.secret == *header.place.secret);
  const auto is_same = [&](const std::string& part) {
    try {
      return to_text(job_header_from(part)) == text;
    } catch (const ddp::rendezvous::Error&) {
      return false;
    }
  };
  bool is_taken = false;
  for (std::size_t length = 0; length < text.size(); ++length) is_taken = is_taken || is_same(text.substr(0, length));
  CHECK_FALSE(is_taken);
  CHECK(is_same(text));
}

TEST_CASE("job header: what contradicts itself is refused", "[launcher][unit]") {
  const auto refused = [](auto change) {
    JobHeader header = example();
    change(header);
    return refusal([&] { job_header_from(to_text(header)); });
  };
  CHECK_THAT(refused([](JobHeader& h) { h.place.node_rank = 2; }), Contains("not below the number of nodes"));
  CHECK_THAT(refused([](JobHeader& h) { h.place.secret.reset(); }), Contains("no address, port or secret"));
  CHECK_THAT(refused([](JobHeader& h) { h.folder = "work"; }), Contains("no folder"));
  CHECK_THAT(refused([](JobHeader& h) { h.arguments.clear(); }), Contains("no arguments"));
  CHECK_THAT(refused([](JobHeader& h) { h.variables = {"=x"}; }), Contains("a variable without a name"));
  CHECK_THAT(refused([](JobHeader& h) { h.folder = std::string("/a\0b", 4); }), Contains("NUL"));
  CHECK_THAT(refused([](JobHeader& h) { h.place.workers = 0; }), Contains("a number of workers that is none"));
  CHECK_THAT(refused([](JobHeader& h) { h.silence = std::chrono::seconds(0); }), Contains("silence_s is 0"));
}

TEST_CASE("launch line: nothing in it means something to csh or fish", "[launcher][unit]") {
  const std::string line = launch_line({"0123abcd", 4711});
  CHECK_THAT(line, Contains("$c/ddprun/0123abcd") && Contains("head -c 4711"));
  const std::string begin = "exec sh -c '";
  REQUIRE(line.starts_with(begin));
  CHECK(line.find_first_of("'!\\\n", begin.size()) == line.size() - 1);
}

TEST_CASE("launch command: has the host, and ssh's options only for ssh", "[launcher][unit]") {
  const Host host{.name = "a", .user = "me", .port = 2222};
  const Host plain{.name = "b"};
  CHECK(launch_command({"ssh", "-J", "jump"}, host, "LINE") ==
        Words{"ssh", "-J", "jump"} + kSshOptions + Words{"-p", "2222", "me@a", "LINE"});
  // ssh joins the words behind its destination, so the line is quoted for the shell there.
  CHECK(launch_command(split_agent("ssh -vJ {host}-jump -oPort=7 {host} docker exec -i C sh -c"), plain, "it's") ==
        Words{"ssh", "-vJ", "b-jump", "-oPort=7"} + kSshOptions +
            Words{"b", "docker", "exec", "-i", "C", "sh", "-c", R"('it'"'"'s')"});
  CHECK(launch_command(split_agent("srun -w {host} sh -c"), plain, "LINE") ==
        Words{"srun", "-w", "b", "sh", "-c", "LINE"});
  CHECK(launch_command(split_agent("run --to={host}:{port}"), host, "LINE") == Words{"run", "--to=me@a:2222", "LINE"});
  CHECK(split_agent(" a 'b c'  \"\" d'e'f ") == Words{"a", "b c", "", "def"});
  CHECK_THAT(refusal([&] { launch_command({"rsh"}, host, "LINE"); }), Contains("has no {port}"));
  CHECK_THAT(refusal([] { split_agent("a 'b"); }), Contains("a quote is not closed"));
}

TEST_CASE("passed variables: those of libraries, those that are asked for, and none of a launcher",
          "[launcher][unit]") {
  const Words here = {"PATH=/bin",
                      "HOME=/root",
                      "NCCL_DEBUG=INFO",
                      "TORCHELASTIC_RUN_ID=x",
                      "DDPRUN_AGENT_SOCKET=y",
                      "CUDA_VISIBLE_DEVICES=0",
                      "MINE=1",
                      "DDPRUN_CALLER=1",
                      "DDPRUN_SECRET_FILE=/s"};
  CHECK(passed_variables(here, {}) == Words{"PATH=/bin", "NCCL_DEBUG=INFO"});
  CHECK(passed_variables(here, {"MINE", "NCCL_DEBUG=WARN", "EMPTY="}) ==
        Words{"PATH=/bin", "MINE=1", "NCCL_DEBUG=WARN", "EMPTY="});
  CHECK_THAT(refusal([&] { passed_variables(here, {"NOT_THERE"}); }), Contains("no such variable"));
  CHECK_THAT(refusal([&] { passed_variables(here, {"a b=c"}); }), Contains("give NAME or NAME=VALUE"));
}

TEST_CASE("passed variables: a host's own options do not count, and what is about its machine does",
          "[launcher][unit]") {
  for (const char* name : {"PET_NNODES", "LOGLEVEL", "DDPRUN_KEEP_MEMORY", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"}) {
    CHECK(sets_option(name));
  }
  for (const char* name : {"PATH", "DDPRUN_CGROUP", "NCCL_SOCKET_IFNAME", "PETS"}) CHECK_FALSE(sets_option(name));
  // The head reads its default of --shutdown-timeout from there.
  CHECK(passed_variables({"TORCH_ELASTIC_SHUTDOWN_TIMEOUT=5"}, {}).size() == 1);
}
