// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/etcd/request_course.hpp"

#include <catch2/catch.hpp>
#include <string>

#include "rendezvous/base/error.hpp"
#include "rendezvous/etcd/client.hpp"
#include "rendezvous/etcd/tls/tls_library.hpp"

using Catch::Matchers::Contains;

namespace ddp::rendezvous {
namespace {

using Kind = EtcdRefusal::Kind;
using What = RequestCourse::What;

const EtcdOutcome kAnswer = EtcdAnswer{.revision = 1};
EtcdOutcome refused(Kind kind) { return EtcdRefusal{kind, "why"}; }
EtcdOutcome text(const std::string& what) {
  EtcdAnswer answer;
  answer.text = what;
  return answer;
}

TEST_CASE("etcd request: one that was not sent goes to each member once", "[rendezvous][unit]") {
  RequestCourse course({"a:1", "b:1", "c:1"}, false);
  CHECK(course.begin().member == 0);
  CHECK_FALSE(course.take(refused(Kind::Unsent)));
  CHECK(course.step().member == 1);
  CHECK(course.take(kAnswer));
  CHECK(course.begin().member == 1);  // and stays there
  CHECK_FALSE(course.take(refused(Kind::Unsent)));
  CHECK_FALSE(course.take(refused(Kind::Unsent)));
  const auto outcome = course.take(refused(Kind::Unsent));
  REQUIRE(outcome);
  CHECK(std::get<EtcdRefusal>(*outcome).why == "etcd at b:1: why, etcd at c:1: why, etcd at a:1: why");
}

TEST_CASE("etcd request: one that may have been done is not sent twice", "[rendezvous][unit]") {
  RequestCourse course({"a:1", "b:1"}, false);
  course.begin();
  const auto outcome = course.take(refused(Kind::Unknown));
  REQUIRE(outcome);
  CHECK(std::get<EtcdRefusal>(*outcome).kind == Kind::Unknown);
  CHECK(course.begin().member == 1);
}

TEST_CASE("etcd request: a token is fetched first, and again once it is not valid any more", "[rendezvous][unit]") {
  RequestCourse course({"a:1", "b:1"}, true);
  CHECK(course.begin().what == What::Token);
  CHECK_FALSE(course.take(text("t1")));
  CHECK(course.step().what == What::Request);
  CHECK(course.step().token == "t1");
  CHECK_FALSE(course.take(refused(Kind::NotAuthenticated)));
  CHECK(course.step().what == What::Token);
  CHECK(course.step().token.empty());
  CHECK_FALSE(course.take(text("t2")));
  CHECK(course.step().token == "t2");
  CHECK(course.take(refused(Kind::NotAuthenticated)));  // once a request
  // A token that does not come costs nothing: the request was not sent.
  CHECK(course.begin().what == What::Request);
  CHECK_FALSE(course.take(refused(Kind::NotAuthenticated)));
  CHECK_FALSE(course.take(refused(Kind::Unknown)));
  CHECK(course.step().member == 1);
  const auto outcome = course.take(refused(Kind::Forbidden));
  REQUIRE(outcome);
  CHECK(std::get<EtcdRefusal>(*outcome).kind == Kind::Forbidden);
}

TEST_CASE("etcd request: a server without users is asked without a token", "[rendezvous][unit]") {
  RequestCourse course({"a:1"}, true);
  course.begin();
  CHECK_FALSE(course.take(refused(Kind::AuthOff)));
  CHECK(course.step().what == What::Request);
  CHECK(course.take(kAnswer));
  CHECK(course.begin().what == What::Request);
}

TEST_CASE("etcd request: the older path is tried, and then the version says what is wrong", "[rendezvous][unit]") {
  RequestCourse course({"a:1"}, false);
  CHECK(course.begin().api == std::string("/v3"));
  CHECK_FALSE(course.take(refused(Kind::NoSuchApi)));
  CHECK(course.step().api == std::string("/v3beta"));
  CHECK(course.take(kAnswer));
  CHECK(course.begin().api == std::string("/v3beta"));

  const auto words = [](const EtcdOutcome& version) {
    RequestCourse other({"a:1"}, false);
    other.begin();
    CHECK_FALSE(other.take(refused(Kind::NoSuchApi)));
    CHECK_FALSE(other.take(refused(Kind::NoSuchApi)));
    CHECK(other.step().what == What::Version);
    const auto outcome = other.take(version);
    return outcome ? std::get<EtcdRefusal>(*outcome).why : "";
  };
  CHECK_THAT(words(text("2.3.8")), Contains("its version is 2.3.8") && Contains("version 2 is not enough"));
  CHECK_THAT(words(text("3.4.23")), Contains("--enable-grpc-gateway=false"));
  CHECK_THAT(words(refused(Kind::Unknown)), Contains("this is no etcd"));
  CHECK_THAT(words(text("\x1b[2J")), !Contains("\x1b"));
}

TEST_CASE("etcd request: endpoints are hosts with ports, and each wrong one is named", "[rendezvous][unit]") {
  const auto found = parse_etcd_endpoints("etcd-0.etcd:2379,10.0.0.1,[fd00::1]:4001,fd00::2,[fd00::3]");
  REQUIRE(found.size() == 5);
  CHECK(found[0].host == "etcd-0.etcd");
  CHECK(found[1].port == 2379);
  CHECK(found[2].host == "fd00::1");
  CHECK(found[2].port == 4001);
  CHECK(found[3].host == "fd00::2");
  CHECK(found[4].port == 2379);
  for (const char* text : {"", "a,", ":2379", "a:0", "a:70000", "a:x", "http://a", "a b", "[]:1", "a\r\nX:1", "[a]1"}) {
    INFO(text);
    CHECK_THROWS_AS(parse_etcd_endpoints(text), Error);
  }
}

TEST_CASE("etcd request: without libssl TLS is refused with what to install", "[rendezvous][unit]") {
  CHECK_THROWS_WITH(open_tls("/nonexistent/libssl.so.3"),
                    Contains("/nonexistent/libssl.so.3") && Contains("install OpenSSL 3 or 1.1"));
}

}  // namespace
}  // namespace ddp::rendezvous
