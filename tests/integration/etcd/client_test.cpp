// SPDX-License-Identifier: BSD-3-Clause
// The client with a real etcd.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>

#include "rendezvous/base/error.hpp"
#include "rendezvous/base/random_id.hpp"
#include "tests/integration/etcd/cluster.hpp"

using namespace ddp::rendezvous;
using namespace ddp::testing;
using Catch::Matchers::Contains;
using Kind = EtcdRefusal::Kind;

namespace {

using namespace std::chrono_literals;

std::string address_of_names;  // what every name below .test leads to

}  // namespace

// A name server with one zone; numeric addresses and other names go to the system's.
extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** result) {
  static const auto real = reinterpret_cast<decltype(&::getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  const bool is_ours = node != nullptr && std::string(node).ends_with(".test");
  if (is_ours && (hints->ai_flags & AI_NUMERICHOST) != 0) return EAI_NONAME;
  return real(is_ours ? address_of_names.c_str() : node, service, hints, result);
}

namespace {

EtcdRefusal refusal(EtcdLoop& loop, EtcdClient& client, EtcdRequest request = ReadKey{"/ddprun/a"}) {
  const EtcdOutcome outcome = loop.ask(client, std::move(request));
  const auto* const refused = std::get_if<EtcdRefusal>(&outcome);
  return refused ? *refused : EtcdRefusal{Kind::Other, "(it was answered)"};
}

EtcdRefusal refusal(EtcdLoop& loop, const EtcdSettings& settings) {
  EtcdClient client(loop.io, settings);
  return refusal(loop, client);
}

TEST_CASE("etcd client: keys, transactions, leases and a watch are as etcd has them", "[etcd][integration]") {
  const EtcdCluster etcd = EtcdCluster::shared();
  EtcdLoop loop;
  EtcdClient client(loop.io, etcd.settings());
  const std::string key = "/ddprun/client/" + random_id();
  const std::string bytes("\0\xff\n\"", 4);

  CHECK(loop.answer(client, ReadKey{key}).keys.empty());
  const EtcdAnswer lease = loop.answer(client, GrantLease{60});
  CHECK(lease.seconds == 60);
  CHECK(loop.answer(client, GrantLease{1}).seconds == 2);  // the least

  EtcdClient watcher(loop.io, etcd.settings());
  std::vector<WatchNews::Event> events;
  watcher.watch(
      {key, lease.revision + 1},
      [&](const WatchNews& news) { events.insert(events.end(), news.events.begin(), news.events.end()); },
      [](const EtcdOutcome&) { FAIL("the watch ended"); });

  const Transaction create = {
      {{key, KeyComparison::Of::Created, 0}}, {PutKey{key, bytes, lease.lease}}, {ReadKey{key}}};
  const EtcdAnswer created = loop.answer(client, create);
  CHECK(created.succeeded);
  const EtcdAnswer again = loop.answer(client, create);
  CHECK_FALSE(again.succeeded);
  REQUIRE(again.find(key) != nullptr);
  CHECK(again.find(key)->value == bytes);
  CHECK(again.find(key)->created == created.revision);
  CHECK(again.find(key)->modified == created.revision);
  CHECK(again.find(key)->lease == lease.lease);

  const auto replace = [&](std::int64_t modified, LeaseId of) {
    return loop.answer(client,
                       Transaction{{{key, KeyComparison::Of::Modified, modified}, {key, KeyComparison::Of::Lease, of}},
                                   {PutKey{key, "x", of}},
                                   {}});
  };
  CHECK_FALSE(replace(created.revision + 1, lease.lease).succeeded);
  CHECK_FALSE(replace(created.revision, lease.lease + 1).succeeded);
  CHECK(replace(created.revision, lease.lease).succeeded);

  CHECK(loop.answer(client, RenewLease{lease.lease}).seconds == 60);
  CHECK(loop.answer(client, RenewLease{4711}).seconds == 0);
  CHECK(refusal(loop, client, RevokeLease{4711}).kind == Kind::NoLease);
  CHECK(refusal(loop, client, PutKey{key, "y", 4711}).kind == Kind::NoLease);
  loop.answer(client, RevokeLease{lease.lease});
  CHECK(loop.answer(client, ReadKey{key}).keys.empty());

  loop.until([&] { return events.size() == 3; }, "three events");
  CHECK(events[0].key.value == bytes);
  CHECK(events[1].key.value == "x");
  CHECK(events[2].is_deleted);
  CHECK(events[2].key.key == key);

  // A watch from what is forgotten by now ends, and says so.
  etcd("ctl", {"compact", std::to_string(loop.answer(client, ReadKey{key}).revision)});
  EtcdClient late(loop.io, etcd.settings());
  std::string why;
  late.watch(
      {key, 1}, [](const WatchNews&) {},
      [&](const EtcdOutcome& outcome) {
        CHECK(std::get<EtcdRefusal>(outcome).kind == Kind::Compacted);
        why = std::get<EtcdRefusal>(outcome).why;
      });
  loop.until([&] { return !why.empty(); }, "the end of the watch");
}

TEST_CASE("etcd client: a member that is dead or frozen costs no more than a deadline", "[etcd][integration]") {
  const EtcdCluster etcd({"--members", "3"});
  EtcdLoop loop;
  EtcdSettings settings = etcd.settings(1s);
  EtcdClient client(loop.io, settings);
  const auto is_answered = [&](EtcdClient& by, const EtcdRequest& request) {
    return std::holds_alternative<EtcdAnswer>(loop.ask(by, request));
  };
  EtcdClient patient(loop.io, etcd.settings());
  loop.answer(patient, PutKey{"/a", "1"});
  while (!is_answered(client, ReadKey{"/a"})) continue;
  EtcdSettings only_first = settings;
  only_first.endpoints.resize(1);
  EtcdClient first(loop.io, only_first);

  etcd("freeze 1");
  const EtcdRefusal frozen = refusal(loop, first, ReadKey{"/a"});
  CHECK_THAT(frozen.why, Contains("no answer in 1 s"));
  loop.until([&] { return is_answered(client, ReadKey{"/a"}); }, "another member");
  etcd("thaw 1");
  etcd("kill 2");
  std::swap(settings.endpoints[0], settings.endpoints[1]);  // it begins with the dead one
  EtcdClient other(loop.io, settings);
  loop.until([&] { return is_answered(other, ReadKey{"/a"}); }, "an election");

  // Without a majority there is no answer, and that says nothing about what was done.
  etcd("kill 3");
  refusal(loop, client, PutKey{"/a", "2"});
  const EtcdRefusal alone = refusal(loop, client, PutKey{"/a", "2"});
  CHECK((alone.kind == Kind::Unknown || alone.kind == Kind::Unsent));
  etcd("kill 1");
  const EtcdRefusal none = refusal(loop, patient, ReadKey{"/a"});
  const EtcdRefusal still_none = refusal(loop, patient, ReadKey{"/a"});  // the first one may have had a connection
  CHECK((none.kind == Kind::Unknown || none.kind == Kind::Unsent));
  CHECK(still_none.kind == Kind::Unsent);
  CHECK_THAT(still_none.why, Contains("connection refused") && Contains(etcd.settings().endpoints[2].host));
}

TEST_CASE("etcd client: TLS verifies authority, name and user, and each refusal says which", "[etcd][integration]") {
  const EtcdCluster etcd({"--client-cert", "--auth"});
  EtcdLoop loop;
  EtcdSettings good = etcd.settings();
  const TlsFiles files = {etcd.file("ca.pem"), etcd.file("client.pem"), etcd.file("client-key.pem")};
  good.tls = files;
  good.user = "ddprun";
  good.password_file = etcd.file("password");
  EtcdClient client(loop.io, good);
  loop.answer(client, PutKey{"/ddprun/a", "1"});

  // A member that was started again does not know the tokens of before.
  etcd("kill 1");
  etcd("start 1");
  loop.until([&] { return std::holds_alternative<EtcdAnswer>(loop.ask(client, PutKey{"/ddprun/a", "2"})); }, "a token");

  const EtcdRefusal elsewhere = refusal(loop, client, PutKey{"/other", "1"});
  CHECK(elsewhere.kind == Kind::Forbidden);
  CHECK_THAT(elsewhere.why, Contains("permission denied"));

  EtcdSettings bad = good;
  const TemporaryFolder folder;
  folder.write("password", "wrong\n");
  std::filesystem::permissions(folder / "password", std::filesystem::perms::owner_read);
  bad.password_file = folder / "password";
  CHECK(refusal(loop, bad).kind == Kind::Forbidden);
  CHECK_THAT(refusal(loop, bad).why, Contains("invalid user ID or password") && !Contains("wrong"));
  bad = good;
  bad.user.clear();
  CHECK_THAT(refusal(loop, bad).why, Contains("no user and password are given"));

  bad = good;
  bad.tls = TlsFiles{etcd.file("stranger.pem"), files.certificate, files.key};
  CHECK(refusal(loop, bad).kind == Kind::Unsent);
  CHECK_THAT(refusal(loop, bad).why, Contains("(cacert names the file of who signed it)"));
  bad.tls = TlsFiles{files.authorities, "", ""};
  CHECK_THAT(refusal(loop, bad).why, Contains("(it wants one of this node: cert and key name the files)"));
  bad.tls.reset();
  CHECK_THAT(refusal(loop, bad).why, Contains("protocol=https"));

  address_of_names = good.endpoints[0].host;
  EtcdSettings by_name = good;
  by_name.endpoints[0].host = "etcd.test";
  EtcdClient named(loop.io, by_name);
  CHECK_NOTHROW(loop.answer(named, ReadKey{"/ddprun/a"}));
  by_name.endpoints[0].host = "other.test";
  CHECK_THAT(refusal(loop, by_name).why, Contains("other.test:2379") && Contains("ostname mismatch"));

  CHECK_THROWS_WITH(TlsContext(TlsFiles{etcd.file("none.pem"), "", ""}), Contains("none.pem"));
  CHECK_THROWS_WITH(TlsContext(TlsFiles{files.authorities, files.certificate, etcd.file("server-key.pem")}),
                    Contains("server-key.pem"));
}

TEST_CASE("etcd client: a password and an authority that are changed are read again", "[etcd][integration]") {
  const EtcdCluster etcd({"--tls", "--auth"});
  const TemporaryFolder folder;
  const auto write_private = [&folder](const char* name, const std::string& text) {
    folder.write(name, text);
    std::filesystem::permissions(folder / name, std::filesystem::perms(0600));
  };
  write_private("password", read_file(etcd.file("password")));
  folder.write("ca.pem", read_file(etcd.file("ca.pem")));
  EtcdLoop loop;
  EtcdSettings settings = etcd.settings();
  settings.tls = TlsFiles{folder / "ca.pem", "", ""};
  settings.user = "ddprun";
  settings.password_file = folder / "password";
  EtcdClient client(loop.io, settings);
  loop.answer(client, PutKey{"/ddprun/a", "1"});

  run({"sh", "-c", "echo changed | \"$0\" ctl \"$1\" user passwd ddprun --interactive=false", ETCD_SCRIPT,
       etcd.file("")});
  CHECK(refusal(loop, client).kind == Kind::Forbidden);
  std::filesystem::remove(folder / "password");
  CHECK_THAT(refusal(loop, client).why, Contains("password_file=" + (folder / "password") + ": No such file"));
  write_private("password", "changed");
  loop.answer(client, PutKey{"/ddprun/a", "2"});

  folder.write("ca.pem", read_file(etcd.file("stranger.pem")));
  etcd("kill 1");
  etcd("start 1");  // else the connection is kept
  loop.until([&] { return refusal(loop, client).why.find("certificate is refused") != std::string::npos; },
             "a refusal");
  folder.write("ca.pem", read_file(etcd.file("ca.pem")));
  CHECK_NOTHROW(loop.answer(client, ReadKey{"/ddprun/a"}));
}

TEST_CASE("etcd client: a server without the API of version 3 is refused in words", "[etcd][integration]") {
  const EtcdCluster etcd({"--v2", "only"});
  EtcdLoop loop;
  const EtcdRefusal why = refusal(loop, etcd.settings());
  CHECK(why.kind == Kind::NoSuchApi);
  CHECK_THAT(why.why, Contains("the API of version 2 is not enough") && Contains("--enable-grpc-gateway"));
}

TEST_CASE("etcd client: a server that has no TLS is named as such", "[etcd][integration]") {
  const EtcdCluster etcd = EtcdCluster::shared();
  EtcdLoop loop;
  EtcdSettings settings = etcd.settings();
  settings.tls = TlsFiles{};
  const EtcdRefusal why = refusal(loop, settings);
  CHECK(why.kind == Kind::Unsent);
  CHECK_THAT(why.why, Contains("no TLS"));
}

}  // namespace
