// SPDX-License-Identifier: BSD-3-Clause
// Those who reach the page of a job (--serve) and should not see it, or want to harm the job by it.
#include <signal.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <list>
#include <optional>
#include <string>
#include <thread>

#include "tests/integration/diagnosis/page.hpp"
#include "tests/support/other_user.hpp"
#include "tests/support/sanitizer.hpp"

using Catch::Matchers::Contains;
using ddp::rendezvous::RawConnection;
using namespace ddp::testing;

namespace {

// Returns the memory that a process has, in kB.
long resident(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::stol(line.substr(6));
  }
  return 0;
}

void still_answers(const PageJob& job) { CHECK(status_of(exchange(job.connect(), page_request("/job.json"))) == 200); }

}  // namespace

TEST_CASE("page: another user of the machine sees nothing of it without the token", "[attacks][integration]") {
  PageJob job;
  for (const char* path : {"/", "/job.json", "/metrics"}) {
    std::optional<RawConnection> made;
    as_other_user([&] { made = job.connect(); });
    const std::string answer = exchange(std::move(*made), page_request(path));
    CHECK(status_of(answer) == 403);
    CHECK_THAT(answer, !Contains("shown"));
  }
  still_answers(job);
  CHECK(job.end().code == 0);
}

TEST_CASE("page: nobody sees anything of it without its token, the job's user included", "[attacks][integration]") {
  const TemporaryFolder folder;
  const std::string file = folder / "token";
  REQUIRE(run(ddprun_raw({"--make-secret", file})).code == 0);
  const std::string token = read_file(file).substr(0, 64);
  PageJob job({"--serve-token=" + file});
  std::string almost = token;
  almost.back() = almost.back() == '0' ? '1' : '0';
  for (const std::string& headers :
       {std::string(), "Authorization: Bearer " + almost + "\r\n", "Authorization: Bearer " + token + "0\r\n",
        std::string("Authorization: Basic Og==\r\n"), "Cookie: token=" + token + "\r\n"}) {
    for (const std::string path : {"/", "/job.json", "/metrics", "/?token=", "/nothing"}) {
      const std::string answer = exchange(job.connect(), page_request(path, headers));
      CHECK(status_of(answer) == 401);
      CHECK_THAT(answer, Contains("WWW-Authenticate: Basic") && !Contains("shown") && !Contains(token));
    }
  }
  CHECK(status_of(exchange(job.connect(), page_request("/", "Authorization: Bearer " + token + "\r\n"))) == 200);
  CHECK(job.end().code == 0);
}

TEST_CASE("page: a page of another site whose name was made to lead here gets nothing (DNS rebinding)",
          "[attacks][integration]") {
  PageJob job;
  for (const std::string host : {"evil.example", "127.0.0.1.evil.example:80", ""}) {
    const std::string answer =
        exchange(job.connect(), page_request("/job.json", "Origin: http://evil.example\r\n", host));
    CHECK(status_of(answer) == 421);
    CHECK_THAT(answer, !Contains("shown"));
  }
  // Nor does a page of another site read what it can have asked for: no answer allows it.
  const std::string answer = exchange(job.connect(), page_request("/job.json", "Origin: http://evil.example\r\n"));
  CHECK_THAT(answer, !Contains("Access-Control-") && Contains("Cross-Origin-Resource-Policy: same-origin"));
  CHECK(job.end().code == 0);
}

TEST_CASE("page: a request of 1 GB is refused, and costs no memory", "[attacks][integration]") {
  PageJob job;
  still_answers(job);
  const pid_t agent = agent_of(job.process());
  const long before = resident(agent);
  const std::string huge(1 << 20, 'x');
  const auto flood = [&](const std::string& first) {
    RawConnection connection = job.connect();
    std::size_t sent = 0;
    if (connection.send(first)) {
      while (sent < 1024 && connection.send(huge)) ++sent;  // until the agent closes
    }
    return sent;
  };
  const std::string line = "GET /job.json HTTP/1.1\r\nHost: 127.0.0.1\r\n";
  CHECK(flood(line + "Content-Length: 1073741824\r\n\r\n") < 1024);
  CHECK(flood(line + "Transfer-Encoding: chunked\r\n\r\n3fffffff\r\n") < 1024);
  CHECK(flood(line + "X: ") < 1024);
  CHECK(flood("GET /") < 1024);
  CHECK(flood("") < 1024);
  if (!kIsSanitized) CHECK(resident(agent) - before < 4096);
  const std::string answer =
      exchange(job.connect(), "POST /job.json HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1073741824\r\n\r\n");
  CHECK(status_of(answer) == 405);
  CHECK(status_of(exchange(job.connect(), line + "Content-Length: 1073741824\r\n\r\n")) == 413);
  CHECK(status_of(exchange(job.connect(), line + "X: " + std::string(20'000, 'x') + "\r\n\r\n")) == 431);
  still_answers(job);
  CHECK(job.end().code == 0);
}

TEST_CASE("page: silent and slow visitors give way to others, and are gone after some seconds",
          "[attacks][integration]") {
  PageJob job;
  std::list<RawConnection> slow;
  for (int i = 0; i < 200; ++i) {
    slow.push_back(job.connect());
    if (i % 2 == 0) slow.back().send("GET /job.json HTTP/1.1\r\nHo");
  }
  still_answers(job);
  // Byte by byte, none of them holds a place for longer than its five seconds.
  const auto until = std::chrono::steady_clock::now() + kDeadline;
  while (!slow.empty() && std::chrono::steady_clock::now() < until) {
    slow.remove_if([](RawConnection& each) { return !each.send("s") || each.has_ended(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  CHECK(slow.empty());
  CHECK(job.end().code == 0);
}

TEST_CASE("page: nonsense ends a connection and nothing else", "[attacks][integration]") {
  PageJob job;
  for (const std::string& bytes :
       {std::string("\0\xff\xfe\r\n\r\n", 7), std::string("GET\r\n\r\n"), std::string("GET / HTTP/9.9\r\n\r\n"),
        page_request("/job.json", "Host: 127.0.0.1\r\n"), std::string("\r\n\r\n\r\n\r\n"),
        std::string("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n"),
        std::string("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"),
        std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + std::string(500, 'x'), std::string("\xdd")}) {
    RawConnection connection = job.connect();
    connection.send(bytes);
    ::shutdown(connection.fd(), SHUT_WR);
    const int status = status_of(connection.receive(1 << 20));
    CHECK((status == 0 || (status >= 400 && status < 500)));
  }
  still_answers(job);
  CHECK(job.end().code == 0);
}

TEST_CASE("page: who leaves in the middle of an answer leaves nothing behind", "[attacks][integration]") {
  PageJob job;
  for (int i = 0; i < 100; ++i) {
    RawConnection connection = job.connect();
    connection.send(page_request(i % 2 == 0 ? "/job.json" : "/"));
  }
  still_answers(job);
  const Result result = job.end();
  CHECK(result.code == 0);
  CHECK(job.process().all_gone());
}
