// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/local/page/page_access.hpp"

#include <catch2/catch.hpp>
#include <string>

using namespace ddp::launcher;
using Catch::Matchers::Contains;

namespace {

const std::string kDigits(64, 'a');

PageRules with_token() { return {.token = ddp::rendezvous::secret_of(kDigits), .own_name = "node7.cluster"}; }
PageRules without_token() { return {.own_name = "Node7.cluster"}; }

PageRequest request(std::string_view host = "127.0.0.1:8080") {
  return {.method = "GET", .target = "/job.json", .host = host, .authorization = "", .has_body = false};
}

int status(const PageRequest& asked, Visitor visitor, const PageRules& rules) {
  return answer_to(asked, visitor, rules).status;
}

}  // namespace

TEST_CASE("page access: the three paths are there, whatever follows a question mark, and no other",
          "[launcher][unit]") {
  PageRequest asked = request();
  const auto content = [&](std::string_view target) {
    asked.target = target;
    const PageAnswer answer = answer_to(asked, Visitor::Own, without_token());
    CHECK(answer.status == 200);
    return answer.content;
  };
  CHECK(content("/") == PageContent::Page);
  CHECK(content("/?x=/metrics") == PageContent::Page);
  CHECK(content("/job.json") == PageContent::JobJson);
  CHECK(content("/metrics?format=text") == PageContent::Metrics);
  for (const char* target : {"", "/index.html", "//", "/../etc/passwd", "http://127.0.0.1/", "*", "/metrics/"}) {
    asked.target = target;
    CHECK(status(asked, Visitor::Own, without_token()) == 404);
  }
}

TEST_CASE("page access: only GET and HEAD without a body are answered", "[launcher][unit]") {
  PageRequest asked = request();
  asked.method = "HEAD";
  CHECK(status(asked, Visitor::Own, without_token()) == 200);
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "get", ""}) {
    asked.method = method;
    CHECK(status(asked, Visitor::Own, without_token()) == 405);
  }
  asked = request();
  asked.has_body = true;
  CHECK(status(asked, Visitor::Own, without_token()) == 413);
}

TEST_CASE("page access: without a token it is for the job's user on this machine alone", "[launcher][unit]") {
  CHECK(status(request(), Visitor::Own, without_token()) == 200);
  for (const Visitor visitor : {Visitor::OtherUser, Visitor::Elsewhere, Visitor::Unknown}) {
    const PageAnswer answer = answer_to(request(), visitor, without_token());
    CHECK(answer.status == 403);
    CHECK_THAT(answer.why, Contains("--serve-token"));
  }
  PageRules any_user = without_token();
  any_user.any_user = true;
  CHECK(status(request(), Visitor::OtherUser, any_user) == 200);
  CHECK(status(request(), Visitor::Elsewhere, any_user) == 403);
  CHECK(status(request(), Visitor::Unknown, any_user) == 403);
}

TEST_CASE("page access: a Host header with a name that is not this machine's is refused", "[launcher][unit]") {
  for (const char* host : {"127.0.0.1", "127.0.0.1:9", "[::1]:8080", "[::1]", "localhost:8080", "LOCALHOST",
                           "localhost.", "node7:80", "NODE7.cluster:80", "10.1.2.3:8080"}) {
    INFO(host);
    CHECK(status(request(host), Visitor::Own, without_token()) == 200);
  }
  for (const char* host : {"", "evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example",
                           "node7.evil.example", "node77", "[evil]:80", "[", ":80", "127.0.0.1@evil.example",
                           "[::1].evil.example", "[::1", "127.0.0.1:evil.example", "[::1]:80.evil.example"}) {
    INFO(host);
    CHECK(status(request(host), Visitor::Own, without_token()) == 421);
  }
}

TEST_CASE("page access: with a token, the token alone counts", "[launcher][unit]") {
  PageRequest asked = request("any.name.of.a.proxy");
  for (const Visitor visitor : {Visitor::Own, Visitor::OtherUser, Visitor::Elsewhere, Visitor::Unknown}) {
    asked.authorization = "";
    CHECK(status(asked, visitor, with_token()) == 401);
    const std::string bearer = "Bearer " + kDigits;
    asked.authorization = bearer;
    CHECK(status(asked, visitor, with_token()) == 200);
  }
}

TEST_CASE("page access: the token is a Bearer token or the password of Basic authentication", "[launcher][unit]") {
  const auto given = [](const std::string& header) {
    PageRequest asked = request();
    asked.authorization = header;
    return status(asked, Visitor::Elsewhere, with_token());
  };
  CHECK(given("bearer   " + kDigits) == 200);
  // "me:aaa...", ":aaa...", and "aaa..." as printf %s | base64 prints them
  CHECK(given("Basic bWU6YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYQ==") ==
        200);
  CHECK(given("Basic OmFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=") == 200);
  for (const std::string& wrong :
       {"Bearer " + std::string(64, 'b'), "Bearer " + kDigits + "a", "Bearer " + kDigits.substr(1),
        std::string("Bearer"), std::string("Bearer "), "Basic " + kDigits, std::string("Basic"),
        std::string("Basic ===="), std::string("Basic \xff\xff"), "Digest " + kDigits, kDigits,
        std::string("Basic bWU6"), std::string("Basic Og==")}) {
    INFO(wrong);
    CHECK(given(wrong) == 401);
  }
}
