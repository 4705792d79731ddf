// SPDX-License-Identifier: BSD-3-Clause
// A server in etcd's place that means harm: it sends without end, sends clients elsewhere, lies, or says nothing.
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/etcd/base64.hpp"
#include "rendezvous/etcd/client.hpp"
#include "rendezvous/etcd/etcd_journal.hpp"
#include "rendezvous/net/asio.hpp"
#include "rendezvous/net/listen.hpp"
#include "tests/rendezvous/store/raw_connection.hpp"
#include "tests/support/process.hpp"
#include "tests/support/sanitizer.hpp"

using namespace ddp::rendezvous;
using namespace ddp::testing;
using Catch::Matchers::Contains;

namespace {

using namespace std::chrono_literals;

// Gives one kind of answer to every request on every connection, from a thread of its own.
class FalseEtcd {
 public:
  using Answer = std::function<void(RawConnection& client, const std::string& request)>;
  explicit FalseEtcd(Answer answer)
      : answer_(std::move(answer)), listeners_(listen_on({"127.0.0.1"}, 0)), thread_([this] { serve(); }) {}
  ~FalseEtcd() {
    ends_ = true;
    thread_.join();
  }
  EtcdSettings settings() const { return {.endpoints = {{"127.0.0.1", listeners_.port}}}; }
  int requests() const { return requests_; }

 private:
  // Each connection has a thread of its own: a journal has two.
  void serve() {
    std::vector<std::thread> connections;
    while (!ends_) {
      pollfd waits = {listeners_.sockets[0].get(), POLLIN, 0};
      if (::poll(&waits, 1, 20) != 1) continue;
      connections.emplace_back([this, socket = ::accept4(waits.fd, nullptr, nullptr, SOCK_CLOEXEC)] {
        RawConnection client(socket);
        answer_all(client);
      });
    }
    for (std::thread& connection : connections) connection.join();
  }
  void answer_all(RawConnection& client) {
    while (!ends_) {
      const std::string request = receive(client);
      if (request.empty()) return;
      ++requests_;
      const std::lock_guard lock(answering_);
      answer_(client, request);
    }
  }
  // Returns a whole request; nothing if the client has gone.
  std::string receive(RawConnection& client) const {
    std::string bytes;
    while (!ends_) {
      pollfd waits = {client.fd(), POLLIN, 0};
      if (::poll(&waits, 1, 20) != 1) continue;
      char part[4096];
      const auto size = ::recv(client.fd(), part, sizeof part, 0);
      if (size <= 0) return "";
      bytes.append(part, static_cast<std::size_t>(size));
      const std::size_t head = bytes.find("\r\n\r\n"), length = bytes.find("Content-Length: ");
      if (head == std::string::npos || length == std::string::npos) continue;
      if (bytes.size() >= head + 4 + std::stoul(bytes.substr(length + 16))) return bytes;
    }
    return "";
  }

  const Answer answer_;
  const Listeners listeners_;
  std::mutex answering_;
  std::atomic<bool> ends_ = false;
  std::atomic<int> requests_ = 0;
  std::thread thread_;
};

void say(RawConnection& client, const std::string& body, const std::string& status = "200 OK") {
  client.send("HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
}

class Loop {
 public:
  asio::io_context io{1};
  void until(const std::function<bool()>& is_true) {
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    while (!is_true()) {
      REQUIRE(std::chrono::steady_clock::now() < deadline);
      io.run_one_for(5ms);
    }
  }
  EtcdRefusal refusal(const EtcdSettings& settings, EtcdRequest request = ReadKey{"a"}) {
    EtcdClient client(io, settings);
    std::optional<EtcdOutcome> came;
    client.ask(std::move(request), [&](EtcdOutcome outcome) { came = std::move(outcome); });
    until([&] { return came.has_value(); });
    const auto* refusal = std::get_if<EtcdRefusal>(&*came);
    return refusal ? *refusal : EtcdRefusal{EtcdRefusal::Kind::Other, "(it was believed)"};
  }

 private:
  asio::executor_work_guard<asio::io_context::executor_type> work_{io.get_executor()};
};

[[maybe_unused]] long most_memory_kb() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

[[maybe_unused]] constexpr long kLittleMemoryKb = 64 << 10;

}  // namespace

TEST_CASE("etcd: a server that sends without end is left, and little of it is kept", "[attacks][integration]") {
  const std::string much(1 << 20, 'a');
  const auto for_ever = [&](const std::string& begin, const std::string& part) {
    return [begin, part](RawConnection& client, const std::string&) {
      client.send(begin);
      for (int megabytes = 0; megabytes < 1024 && client.send(part); ++megabytes) continue;
    };
  };
  Loop loop;
  const long before = most_memory_kb();
  const std::string ok = "HTTP/1.1 200 OK\r\n";
  const std::string chunk = "100000\r\n" + much + "\r\n";
  for (const auto& [begin, part] :
       {std::pair(ok + "Content-Length: 1073741824\r\n\r\n", much), std::pair(ok + "\r\n", much),
        std::pair(ok + "Transfer-Encoding: chunked\r\n\r\n", chunk), std::pair(ok + "X: ", much),
        std::pair(std::string(), much)}) {
    const FalseEtcd server(for_ever(begin, part));
    const EtcdRefusal why = loop.refusal(server.settings());
    INFO(why.why);
    CHECK(why.kind == EtcdRefusal::Kind::Unknown);
    CHECK_THAT(why.why, Contains("more than") || Contains("not HTTP"));
    // A watch has no end either, but its lines do.
    EtcdClient client(loop.io, server.settings());
    std::string over;
    client.watch(
        {"a", 1}, [](const WatchNews&) {}, [&](EtcdOutcome outcome) { over = std::get<EtcdRefusal>(outcome).why; });
    loop.until([&] { return !over.empty(); });
  }
  if (!kIsSanitized) CHECK(most_memory_kb() - before < kLittleMemoryKb);
}

TEST_CASE("etcd: a server that drips or is silent costs a deadline", "[attacks][integration]") {
  Loop loop;
  const FalseEtcd drips([](RawConnection& client, const std::string&) {
    client.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
    while (client.send("x")) ::poll(nullptr, 0, 50);
  });
  CHECK_THAT(loop.refusal(drips.settings()).why, Contains("no answer in 1 s"));
  const FalseEtcd silent([](RawConnection&, const std::string&) {});
  CHECK_THAT(loop.refusal(silent.settings()).why, Contains("no answer in 1 s"));
}

TEST_CASE("etcd: a server that sends clients elsewhere is not followed, nor given the password",
          "[attacks][integration]") {
  Loop loop;
  std::atomic<int> reached = 0;
  const FalseEtcd other([&](RawConnection& client, const std::string&) {
    ++reached;
    say(client, "{}");
  });
  const std::string to = "http://127.0.0.1:" + std::to_string(other.settings().endpoints[0].port) + "/v3/kv/range";
  const FalseEtcd server([&](RawConnection& client, const std::string&) {
    client.send("HTTP/1.1 307 Temporary Redirect\r\nLocation: " + to + "\r\nContent-Length: 0\r\n\r\n");
  });
  EtcdSettings settings = server.settings();
  settings.user = "ada";
  const TemporaryFolder folder;
  folder.write("password", "secret");
  chmod((folder / "password").c_str(), 0600);
  settings.password_file = folder / "password";
  const EtcdRefusal why = loop.refusal(settings);
  CHECK_THAT(why.why, Contains("is not followed") && !Contains("secret"));
  CHECK(reached == 0);
}

TEST_CASE("etcd: a server that lies makes no leader, and writes nothing to the terminal", "[attacks][integration]") {
  const std::string header = R"("header":{"revision":"7"})";
  Loop loop;
  for (
      const std::string& lie : {
          std::string("{}"),
          std::string("[[[["),
          std::string("\x1b]0;title\x07\x1b[2J"),
          std::string(1 << 20, '['),
          "{" + header + R"(,"ID":"-1","TTL":"9223372036854775807","succeeded":true})",
          "{" + header + R"(,"succeeded":true,"responses":[{},{},{}]})",
          "{" + header +
              R"(,"ID":"5","TTL":"5","succeeded":false,"responses":[{"response_range":{"kvs":[{"key":"aA=="},{"key":"aA=="}]}}]})",
      }) {
    const FalseEtcd server([&](RawConnection& client, const std::string&) { say(client, lie); });
    std::string words, lost;
    bool is_claimed = false;
    EtcdJournal journal(loop.io, server.settings(), {.job = "j", .self = "a"},
                        {.on_trouble = [&](const std::string& why) { words += why; }});
    journal.claim({.on_claimed = [&](const JournalClaim&) { is_claimed = true; },
                   .on_kept = [](std::uint64_t) {},
                   .on_lost = [&](const std::string& why) { lost = why; }});
    loop.until([&] { return !lost.empty() || server.requests() > 3; });
    INFO(words << lost);
    CHECK_FALSE(is_claimed);
    CHECK_FALSE(journal.may_tell());
    CHECK_THAT(words + lost, !Contains("\x1b"));
  }
}

TEST_CASE("etcd: what is sent to it holds no secret of the job", "[attacks][integration]") {
  Loop loop;
  std::string sent;
  {
    const FalseEtcd server([&](RawConnection& client, const std::string& request) {
      sent += request;
      say(client, R"({"header":{"revision":"7"},"ID":"5","TTL":"5"})");
    });
    EtcdJournal journal(loop.io, server.settings(), {.job = "the job", .self = "a", .note = "10.0.0.1:4711"}, {});
    journal.claim({[](const JournalClaim&) {}, [](std::uint64_t) {}, [](const std::string&) {}});
    loop.until([&] { return server.requests() > 2; });
  }
  // The id, who holds it and where, and nothing of the environment.
  CHECK_THAT(sent, Contains("POST /v3/lease/grant") && Contains("POST /v3/kv/txn") && !Contains("Authorization"));
}

TEST_CASE("etcd: a key that says falsely which node coordinates leads nowhere, and nothing of it is shown",
          "[attacks][integration]") {
  // Something else listens where it leads, and says nothing.
  const Listeners silent = listen_on({"127.0.0.1"}, 0);
  const std::string true_form = "node n\nhost liar\naddress 127.0.0.1\nport " + std::to_string(silent.port) + "\n";
  for (const std::string& note : {true_form, std::string("node n\nhost \x1b[2J\naddress 127.0.0.1\nport 1\n"),
                                  std::string("10.0.0.1:4711"), std::string(1 << 20, 'x')}) {
    CAPTURE(note.substr(0, 100));
    const std::string key = R"({"key":")" + base64_of(leader_key("j")) + R"(","value":")" +
                            base64_of("ddprun-holder 1 other\n" + note) +
                            R"(","create_revision":"5","mod_revision":"5","lease":"9"})";
    const FalseEtcd server([&](RawConnection& client, const std::string& request) {
      if (request.find("/v3/watch") != std::string::npos) return;
      const bool compares = request.find(R"("target")") != std::string::npos;
      say(client, R"({"header":{"revision":"7"},"ID":"5","TTL":"5","succeeded":)" +
                      std::string(compares ? "false" : "true") + R"(,"responses":[{"response_range":{"kvs":[)" + key +
                      R"(],"count":"1"}},{"response_range":{}}]})");
    });
    Process job(std::vector<std::string>{
        DDPRUN_BINARY, "--nnodes=2", "--rdzv-backend=etcd", "--rdzv-id=j", "--rdzv-conf=join_timeout=2",
        "--rdzv-endpoint=127.0.0.1:" + std::to_string(server.settings().endpoints[0].port), FAKE_WORKER_BINARY,
        "say=never"});
    const Result result = job.wait();
    CAPTURE(result.err);
    CHECK(result.code == 75);
    CHECK(result.out.empty());
    CHECK_THAT(result.err, Contains("no coordinator at the node that etcd names") && !Contains("\x1b"));
    CHECK((note == true_form) == (count(result.err, "is no such note") == 0));
    CHECK(job.all_gone());
  }
}
