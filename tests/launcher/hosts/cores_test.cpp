// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch.hpp>
#include <csignal>

#include "launcher/hosts/head_core.hpp"
#include "launcher/hosts/on_host_core.hpp"

using namespace ddp::launcher;
using Catch::Matchers::Contains;
using std::chrono::seconds;

namespace {

const HeadCore::Time kBegin{seconds(1000)};

std::string text_of(const HeadAction& action) {
  if (const auto* start = std::get_if<StartAll>(&action)) {
    return "start " + start->master_addr + ":" + std::to_string(start->master_port);
  }
  if (const auto* signal = std::get_if<SignalHosts>(&action)) return "signal " + std::to_string(signal->signal);
  if (std::holds_alternative<CutLinks>(action)) return "cut";
  if (std::holds_alternative<KillLinks>(action)) return "kill";
  if (const auto* say = std::get_if<SayLine>(&action)) return "say " + say->text;
  return "end " + std::to_string(std::get<EndHead>(action).code);
}

std::string text_of(const HeadCore::Actions& actions) {
  std::string text;
  for (const HeadAction& action : actions) text += (text.empty() ? "" : "; ") + text_of(action);
  return text;
}

Hello hello(const std::string& address, const std::string& caller = "10.0.0.9") {
  return {.host = "h", .address = address, .caller_address = caller, .port = 4000};
}

HeadCore core_of(bool first_is_local = false) {
  return HeadCore({.hosts = {{"a", first_is_local}, {"b"}}, .shutdown_timeout = seconds(30)}, kBegin);
}

HeadCore running() {
  HeadCore core = core_of();
  core.ready(0, hello("10.0.0.1"), kBegin);
  core.ready(1, hello("10.0.0.2"), kBegin);
  return core;
}

std::string text_of(const OnHostCore::Actions& actions) {
  std::string text;
  for (const OnHostAction& action : actions) {
    if (const auto* signal = std::get_if<SignalJob>(&action)) text += "signal " + std::to_string(signal->signal);
    if (const auto* exit = std::get_if<ReportExit>(&action)) text += "exit " + std::to_string(exit->code);
  }
  return text;
}

}  // namespace

TEST_CASE("head: the job starts once all hosts are ready, at the first host's address", "[launcher][unit]") {
  HeadCore core = core_of();
  CHECK(text_of(core.ready(1, hello("10.0.0.2"), kBegin)).empty());
  CHECK(text_of(core.ready(0, hello("10.0.0.1"), kBegin)) == "start 10.0.0.1:4000");
  CHECK(text_of(core.ready(0, hello("10.0.0.7"), kBegin)).empty());
}

TEST_CASE("head: where the first host is this machine, the others say how they reach it", "[launcher][unit]") {
  HeadCore core = core_of(true);
  core.ready(0, hello("127.0.0.1", ""), kBegin);
  CHECK(text_of(core.ready(1, hello("10.0.0.2"), kBegin)) == "start 10.0.0.9:4000");
}

TEST_CASE("head: a host that cannot be reached is named, and nothing is started", "[launcher][unit]") {
  HeadCore core = core_of();
  core.ready(0, hello("10.0.0.1"), kBegin);
  CHECK(text_of(core.link_ended(1, "ssh ended with exit code 255", kBegin)) ==
        "say host b cannot take part: ssh ended with exit code 255; nothing was started; cut");
  CHECK(text_of(core.failed(0, "its stdin ended", kBegin)).empty());
  CHECK(text_of(core.link_ended(0, "x", kBegin)) == "end 1");
}

TEST_CASE("head: a host without an answer is given up after a minute without progress", "[launcher][unit]") {
  HeadCore core = core_of();
  core.ready(0, hello("10.0.0.1"), kBegin);
  CHECK(text_of(core.tick(kBegin + seconds(10))) == "say waiting for host b");
  core.progressed(1, kBegin + seconds(50));
  CHECK(text_of(core.tick(kBegin + seconds(70))).empty());
  CHECK_THAT(text_of(core.tick(kBegin + seconds(110))), Contains("host b cannot take part: no answer in 60 s"));
  CHECK(text_of(core.tick(kBegin + seconds(115))) == "kill");
}

TEST_CASE("head: the exit code is the first host's if it failed, else another's", "[launcher][unit]") {
  HeadCore core = running();
  core.exited(1, 1, kBegin);
  core.exited(0, 7, kBegin);
  CHECK(text_of(core.link_ended(1, "", kBegin)).empty());
  CHECK(text_of(core.link_ended(0, "", kBegin)) == "end 7");
  HeadCore good = running();
  good.exited(0, 0, kBegin);
  good.exited(1, 0, kBegin);
  good.link_ended(0, "", kBegin);
  CHECK(text_of(good.link_ended(1, "", kBegin)) == "end 0");
}

TEST_CASE("head: a host that is lost ends the job, which has its shutdown timeout for that", "[launcher][unit]") {
  HeadCore core = running();
  CHECK(text_of(core.link_ended(1, "ssh was killed", kBegin)) == "say host b is lost: ssh was killed; signal 15");
  CHECK(text_of(core.tick(kBegin + seconds(39))).empty());
  CHECK(text_of(core.tick(kBegin + seconds(40))) == "say no end from host a: closing the connections; cut");
  CHECK(text_of(core.tick(kBegin + seconds(45))) == "kill");
  CHECK(text_of(core.link_ended(0, "", kBegin + seconds(45))) == "end 1");
}

TEST_CASE("head: signals go to all hosts, and a second Ctrl-C shortens their time", "[launcher][unit]") {
  HeadCore core = running();
  CHECK(text_of(core.signal(SIGUSR1, kBegin)) == "signal 10");
  CHECK(text_of(core.signal(SIGINT, kBegin)) == "signal 2");
  CHECK(text_of(core.tick(kBegin + seconds(20))).empty());
  CHECK(text_of(core.signal(SIGINT, kBegin + seconds(20))) == "signal 2");
  CHECK_THAT(text_of(core.tick(kBegin + seconds(25))), Contains("cut"));
}

TEST_CASE("head: a signal before the start starts nothing", "[launcher][unit]") {
  HeadCore core = core_of();
  CHECK(text_of(core.signal(SIGTERM, kBegin)) == "cut");
  CHECK(text_of(core.ready(0, hello("10.0.0.1"), kBegin)).empty());
  core.link_ended(0, "x", kBegin);
  CHECK(text_of(core.link_ended(1, "x", kBegin)) == "end 143");
}

TEST_CASE("on a host: without a beat or a lifeline the job is stopped, then killed", "[launcher][unit]") {
  const auto begin = OnHostCore::Time(seconds(1000));
  OnHostCore silent(seconds(30), begin);
  silent.beat(begin + seconds(2));
  CHECK(text_of(silent.tick(begin + seconds(7))).empty());
  CHECK(*silent.due() == begin + seconds(8));
  CHECK(text_of(silent.tick(begin + seconds(8))) == "signal 15");
  CHECK(text_of(silent.tick(begin + seconds(40))).empty());
  CHECK(text_of(silent.tick(begin + seconds(41))) == "signal 9");
  CHECK(text_of(silent.job_ended(137)) == "exit 137");
  CHECK(text_of(silent.lifeline_ended("x", begin)).empty());
}

TEST_CASE("on a host: a job that is stopping keeps its time when the lifeline ends", "[launcher][unit]") {
  const auto begin = OnHostCore::Time(seconds(1000));
  OnHostCore core(seconds(5), begin);
  CHECK(text_of(core.signal(SIGINT, begin)) == "signal 2");
  CHECK(text_of(core.lifeline_ended("x", begin)).empty());
  CHECK(text_of(core.tick(begin + seconds(8))) == "signal 9");
}
