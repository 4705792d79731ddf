// SPDX-License-Identifier: BSD-3-Clause
// What is sent to etcd and read from it. The answers are those of etcd 3.4.
#include "rendezvous/etcd/messages.hpp"

#include <catch2/catch.hpp>
#include <string>

#include "rendezvous/etcd/base64.hpp"

using Catch::Matchers::Contains;

namespace ddp::rendezvous {
namespace {

using Kind = EtcdRefusal::Kind;

const std::string kHeader =
    R"("header":{"cluster_id":"14960133569968935533","member_id":"2752","revision":"7","raft_term":"2"})";

EtcdAnswer answer_of(const EtcdRequest& request, const std::string& body) {
  const EtcdOutcome outcome = read_answer(request, 200, body);
  if (const auto* refusal = std::get_if<EtcdRefusal>(&outcome)) FAIL(refusal->why);
  return std::get<EtcdAnswer>(outcome);
}

EtcdRefusal refusal_of(const EtcdRequest& request, unsigned status, const std::string& body) {
  const EtcdOutcome outcome = read_answer(request, status, body);
  REQUIRE(std::holds_alternative<EtcdRefusal>(outcome));
  return std::get<EtcdRefusal>(outcome);
}

TEST_CASE("etcd messages: base64 gives back what it was given, and refuses what is none", "[rendezvous][unit]") {
  for (const std::string& bytes : {std::string(), std::string("a"), std::string("ab"), std::string("\0\xff\n", 3)}) {
    CHECK(from_base64(base64_of(bytes)) == bytes);
  }
  CHECK(base64_of("h") == "aA==");
  for (const char* text : {"aA", "aA=", "a===", "aA==x", "a A=", "-_==", "====", "a"}) {
    INFO(text);
    CHECK_FALSE(from_base64(text));
  }
}

TEST_CASE("etcd messages: a transaction is written as the gateway reads it", "[rendezvous][unit]") {
  const RequestWords words =
      words_of(Transaction{{{"h", KeyComparison::Of::Created, 0}, {"h", KeyComparison::Of::Lease, 77}},
                           {PutKey{"h", "x", 77}, DeleteKey{"r"}},
                           {ReadKey{"h"}}});
  CHECK(words.path == std::string("/kv/txn"));
  CHECK(words.body == R"({"compare":[{"create_revision":"0","key":"aA==","result":"EQUAL","target":"CREATE"},)"
                      R"({"key":"aA==","lease":"77","result":"EQUAL","target":"LEASE"}],)"
                      R"("failure":[{"request_range":{"key":"aA=="}}],)"
                      R"("success":[{"request_put":{"key":"aA==","lease":"77","value":"eA=="}},)"
                      R"({"request_delete_range":{"key":"cg=="}}]})");
  CHECK(words_of(WatchKey{"h", 9}).body == R"({"create_request":{"key":"aA==","start_revision":"9"}})");
  CHECK(words_of(Authenticate{"a\"b", "c"}).body == R"({"name":"a\"b","password":"c"})");
}

TEST_CASE("etcd messages: what is left out of an answer is zero, false or empty", "[rendezvous][unit]") {
  const Transaction claim = {{{"h", KeyComparison::Of::Created, 0}}, {PutKey{"h", "x"}}, {ReadKey{"h"}}};
  const EtcdAnswer won = answer_of(
      claim, "{" + kHeader + R"(,"succeeded":true,"responses":[{"response_put":{"header":{"revision":"7"}}}]})");
  CHECK(won.succeeded);
  CHECK(won.revision == 7);
  const EtcdAnswer not_won = answer_of(
      claim,
      "{" + kHeader +
          R"(,"responses":[{"response_range":{"kvs":[{"key":"aA==","create_revision":"3","mod_revision":"5","value":"eA==","lease":"77"}],"count":"1"}}]})");
  CHECK_FALSE(not_won.succeeded);
  REQUIRE(not_won.find("h") != nullptr);
  CHECK(not_won.find("h")->created == 3);
  CHECK(not_won.find("h")->modified == 5);
  CHECK(not_won.find("h")->lease == 77);
  CHECK(answer_of(ReadKey{"h"}, "{" + kHeader + "}").keys.empty());
  CHECK(answer_of(RenewLease{77}, R"({"result":{)" + kHeader + R"(,"ID":"77"}})").seconds == 0);
  CHECK(answer_of(RenewLease{77}, R"({"result":{)" + kHeader + R"(,"ID":"77","TTL":"5"}})").seconds == 5);
}

TEST_CASE("etcd messages: a refusal says what it means, and whether something may have been done",
          "[rendezvous][unit]") {
  const auto said = [](const std::string& text) {
    return R"({"error":")" + text + R"(","message":")" + text + R"(","code":5})";
  };
  const PutKey put = {"h", "x"};
  CHECK(refusal_of(put, 404, said("etcdserver: requested lease not found")).kind == Kind::NoLease);
  CHECK(refusal_of(put, 429, said("etcdserver: mvcc: database space exceeded")).kind == Kind::NoSpace);
  CHECK(refusal_of(put, 401, said("etcdserver: invalid auth token")).kind == Kind::NotAuthenticated);
  CHECK(refusal_of(put, 403, said("etcdserver: permission denied")).kind == Kind::Forbidden);
  CHECK(refusal_of(put, 412, said("etcdserver: authentication is not enabled")).kind == Kind::AuthOff);
  CHECK(refusal_of(put, 503, said("etcdserver: request timed out")).kind == Kind::Unknown);
  CHECK(refusal_of(put, 503, said("etcdserver: no leader")).kind == Kind::Unknown);
  CHECK(refusal_of(put, 400, said("etcdserver: duplicate key given in txn request")).kind == Kind::Other);
  CHECK(refusal_of(put, 404, "404 page not found\n").kind == Kind::NoSuchApi);
  CHECK_THAT(refusal_of(put, 307, "").why, Contains("is not followed"));
  CHECK(refusal_of(put, 502, "<html>bad gateway").kind == Kind::Unknown);
  CHECK_THAT(refusal_of(put, 400, "\x1b[31mred").why, !Contains("\x1b"));
}

TEST_CASE("etcd messages: a server that lies is refused, and leaves open what was done", "[rendezvous][unit]") {
  const Transaction read_two = {{}, {ReadKey{"h"}, ReadKey{"r"}}, {}};
  const std::string key = R"({"key":"aA==","create_revision":"3","mod_revision":"5","value":"eA=="})";
  for (
      const std::string& body : {
          std::string("nonsense"),
          std::string("[]"),
          std::string("{}"),

          "{" + kHeader + R"(,"succeeded":"yes"})",
          "{" + kHeader + R"(,"succeeded":true,"responses":[]})",
          "{" + kHeader + R"(,"succeeded":true,"responses":[{"response_range":{}},{"response_put":{}}]})",
          "{" + kHeader + R"(,"succeeded":true,"responses":[{"response_range":{"kvs":[)" + key + "," + key +
              R"(]}},{"response_range":{}}]})",
          "{" + kHeader +
              R"(,"succeeded":true,"responses":[{"response_range":{"kvs":[{"key":"!"}]}},{"response_range":{}}]})",
          "{" + kHeader +
              R"(,"succeeded":true,"responses":[{"response_range":{"kvs":[{"key":"aA==","mod_revision":"x"}]}},{"response_range":{}}]})",
          std::string(R"({"header":{"revision":1e99},"succeeded":true})"),
          std::string(1 << 20, '['),
      }) {
    INFO(body.substr(0, 200));
    CHECK(refusal_of(read_two, 200, body).kind == Kind::Unknown);
  }
  CHECK(refusal_of(RenewLease{77}, 200, R"({"result":{)" + kHeader + R"(,"ID":"78","TTL":"5"}})").kind ==
        Kind::Unknown);
  CHECK(refusal_of(GrantLease{5}, 200, "{" + kHeader + "}").kind == Kind::Unknown);
  CHECK(refusal_of(Authenticate{"a", "b"}, 200, "{" + kHeader + R"(,"token":"a\r\nX: y"})").kind == Kind::Unknown);
}

TEST_CASE("etcd messages: a watch tells what came, what went and why it ends", "[rendezvous][unit]") {
  const auto news = std::get<WatchNews>(read_news(
      R"({"result":{)" + kHeader +
      R"(,"events":[{"kv":{"key":"aA==","mod_revision":"6","value":"eA=="}},{"type":"DELETE","kv":{"key":"aA==","mod_revision":"7"}}]}})"));
  REQUIRE(news.events.size() == 2);
  CHECK(news.events[0].key.value == "x");
  CHECK(news.events[1].is_deleted);
  CHECK(std::get<WatchNews>(read_news(R"({"result":{)" + kHeader + R"(,"created":true}})")).events.empty());
  const auto end = [](const std::string& result) { return std::get<EtcdRefusal>(read_news(result)); };
  CHECK(end(R"({"result":{)" + kHeader + R"(,"canceled":true,"compact_revision":"9"}})").kind == Kind::Compacted);
  CHECK_THAT(
      end(R"({"result":{)" + kHeader + R"(,"canceled":true,"cancel_reason":"etcdserver: permission denied"}})").why,
      Contains("permission denied"));
  CHECK(end(R"({"error":{"grpc_code":14,"message":"transport is closing"}})").kind == Kind::Unknown);
  CHECK(end("x").kind == Kind::Unknown);
}

}  // namespace
}  // namespace ddp::rendezvous
