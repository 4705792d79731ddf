// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/hosts/host_list.hpp"

#include <catch2/catch.hpp>
#include <functional>

#include "rendezvous/base/error.hpp"

using namespace ddp::launcher;
using Catch::Matchers::Contains;

namespace {

// "me@a:2 port 22 [0,1]; b", so that a list is compared at a glance.
std::string text_of(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts) {
    text += (text.empty() ? "" : "; ") + (host.user.empty() ? "" : host.user + "@") + host.name;
    if (host.slots) text += " " + std::to_string(*host.slots);
    if (host.port) text += " port " + std::to_string(*host.port);
    for (const int slot : host.chosen_slots) text += " #" + std::to_string(slot);
  }
  return text;
}

std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const ddp::rendezvous::Error& error) {
    return error.what();
  }
  return "nothing was refused";
}

std::string refusal_of_file(const std::string& content) {
  return refusal([&] { parse_hostfile(content, "hosts.txt"); });
}

}  // namespace

TEST_CASE("host list: --hosts gives names, users, slots and IPv6 addresses", "[launcher][unit]") {
  CHECK(text_of(parse_hosts("a:2,b:1")) == "a 2; b 1");
  CHECK(text_of(parse_hosts("a,me@b.example:4")) == "a; me@b.example 4");
  CHECK(text_of(parse_hosts("[fd00::1]:2,[fd00::2],fd00::3")) == "fd00::1 2; fd00::2; fd00::3");
  CHECK(text_of(parse_hosts("a,a,b:2,b:3")) == "a 2; b 5");
}

TEST_CASE("host list: hostfiles are read as Open MPI, DeepSpeed, MPICH and PBS write them", "[launcher][unit]") {
  CHECK(text_of(parse_hostfile("# nodes\n\na slots=8 # first\nb slots = 4 max_slots=8\r\n", "f")) == "a 8; b 4");
  CHECK(text_of(parse_hostfile("me@a port=2222\nb:2\n[::5]:3\n", "f")) == "me@a port 2222; b 2; ::5 3");
  CHECK(text_of(parse_hostfile("a\na\na\nb\n", "f")) == "a 3; b");
  CHECK(text_of(parse_hostfile("a user=you slots=1", "f")) == "you@a 1");
  CHECK(text_of(parse_hostfile("\xef\xbb\xbf\x61 slots=1\r\nb\r\n", "f")) == "a 1; b");  // from Windows
}

TEST_CASE("host list: what cannot be read is refused with its line", "[launcher][unit]") {
  CHECK_THAT(refusal_of_file("a\nb slots=two\n"), Contains("hosts.txt:2: 'two' is not a number of slots"));
  CHECK_THAT(refusal_of_file("a slots=0"), Contains("hosts.txt:1: '0' is not a number of slots"));
  CHECK_THAT(refusal_of_file("a gpus=2"), Contains("'gpus=2' is not known"));
  CHECK_THAT(refusal_of_file("a 4"), Contains("'4' is not KEY=VALUE"));
  CHECK_THAT(refusal_of_file("a:2 slots=2"), Contains("slots of a are given twice"));
  CHECK_THAT(refusal_of_file("a port=99999"), Contains("'99999' is not a port"));
  CHECK_THAT(refusal_of_file("# nothing\n"), Contains("hosts.txt names no host"));
  CHECK_THAT(refusal([] { parse_hosts("a:b"); }), Contains("'b' is not a number of slots"));
  CHECK_THAT(refusal([] { parse_hosts("[::1"); }), Contains("give [ADDRESS] or [ADDRESS]:SLOTS"));
  CHECK_THAT(refusal([] { parse_hosts("a,,b"); }), Contains("'' is not a host"));
}

TEST_CASE("host list: a name that ssh or a shell would take for something else is no host", "[launcher][unit]") {
  for (const char* name : {"-oProxyCommand=reboot", "a;reboot", "a b", "$(reboot)", "-x@a", "a@-x", "a'b", "a/b",
                           "a\xc2\x9b"
                           "2J",
                           "a\xe2\x80\xae"
                           "b",
                           "a\xff"}) {
    CAPTURE(name);
    CHECK_THAT(refusal([&] { parse_hosts(name); }), Contains("is not a host"));
  }
  CHECK_THAT(refusal_of_file("a user=-oProxyCommand=x"), Contains("is not a user"));
  CHECK_THAT(refusal([] { parse_hosts(std::string(256, 'a')); }), Contains("is not a host"));
  CHECK(parse_hosts("b\xc3\xbc"
                    "cher," +
                    std::string(255, 'a'))
            .size() == 2);
}

TEST_CASE("host list: --include and --exclude choose hosts and slots", "[launcher][unit]") {
  const auto hosts = parse_hosts("a:4,b:2,c");
  CHECK(text_of(choose_hosts(hosts, "", "")) == "a 4; b 2; c");
  CHECK(text_of(choose_hosts(hosts, "c@a:1,3", "")) == "a 2 #1 #3; c");
  CHECK(text_of(choose_hosts(hosts, "", "a:0@c")) == "a 3 #1 #2 #3; b 2");
  CHECK(text_of(choose_hosts(hosts, "", "b:0,1")) == "a 4; c");
  const auto no = [&](const std::string& include, const std::string& exclude) {
    return refusal([&] { choose_hosts(hosts, include, exclude); });
  };
  CHECK_THAT(no("a", "b"), Contains("contradict each other"));
  CHECK_THAT(no("d", ""), Contains("--include: there is no host 'd' in the list, which has a, b, c"));
  CHECK_THAT(no("b:2", ""), Contains("b has 2 slots, so none with number 2"));
  CHECK_THAT(no("c:0", ""), Contains("slots of c, of which nobody has said how many there are"));
  CHECK_THAT(no("a,b", ""), Contains("write @ between hosts"));
  CHECK_THAT(no("", "a@b@c"), Contains("--exclude leaves no host"));
}

TEST_CASE("host list: this machine needs no ssh unless a user or a port is given", "[launcher][unit]") {
  const auto is_here = [](const std::string& host) { return is_this_machine(parse_hosts(host)[0], "gpu01.example"); };
  CHECK((is_here("localhost") && is_here("127.0.0.1") && is_here("gpu01") && is_here("gpu01.example")));
  CHECK_FALSE((is_here("gpu02") || is_here("me@localhost")));
}
