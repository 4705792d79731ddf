// SPDX-License-Identifier: BSD-3-Clause
// Strangers who make a store keep what it does not count, and a store that makes its client believe a length.
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "rendezvous/store/c10d_protocol.hpp"
#include "rendezvous/store/tcp_store.hpp"
#include "tests/integration/store_process.hpp"
#include "tests/rendezvous/store/hex.hpp"
#include "tests/rendezvous/store/raw_connection.hpp"
#include "tests/support/process.hpp"

using namespace ddp::rendezvous;
using ddp::testing::kDeadline;
using ddp::testing::Process;
using ddp::testing::StoreProcess;

namespace {

constexpr std::size_t kMiB = 1 << 20;
constexpr std::size_t kProgram = 12 * kMiB;  // the store itself takes it, with what one turn of its loop has in hand
const std::string kHello = from_hex("00 cef7853c 0d 34120000");
const std::string kPing = from_hex("0d 34120000");

StoreProcess store_of(std::size_t mib) { return StoreProcess({"--max-memory", std::to_string(mib)}); }

RawConnection greeted(const StoreProcess& store) {
  RawConnection raw = RawConnection::to(store.port);
  REQUIRE(raw.send(kHello));
  REQUIRE(raw.receive(4).size() == 4);
  return raw;
}

// Sends the bytes as far as the store takes them. Returns whether it has carried all of them out, and not closed.
bool outlives(RawConnection& raw, const std::string& bytes) {
  return raw.send(bytes) && raw.send(kPing) && raw.receive(4).size() == 4;
}

std::string numbered(std::size_t number, std::size_t size) {
  std::string key = "/" + std::to_string(number);
  key.resize(size, '.');
  return key;
}

// Checks that other clients do not notice.
void check_works(const StoreProcess& store) {
  TcpStore client("127.0.0.1", store.port, kDeadline);
  client.set("other", "v");
  CHECK(client.get("other") == "v");
}

}  // namespace

TEST_CASE("memory: keys that strangers watch are within the store's limit", "[attacks][integration]") {
  const StoreProcess store = store_of(16);
  std::vector<RawConnection> strangers;
  int refused = 0;
  for (std::size_t stranger = 0; stranger < 4; ++stranger) {
    std::string watches;  // as PyTorch 1.9 sends them
    for (std::size_t i = 0; i < 2000; ++i) {
      watches += '\x07';
      append_bytes(watches, numbered(stranger * 2000 + i, 8000));
    }
    strangers.push_back(RawConnection::to(store.port));
    const bool is_taken = strangers.back().send(watches) && strangers.back().receive(2000).size() == 2000;
    refused += is_taken ? 0 : 1;
  }
  CHECK(refused >= 3);  // one fills the store
  CHECK(store.peak() < 16 * kMiB + kProgram);
  strangers.clear();
  check_works(store);
}

TEST_CASE("memory: clients that wait for missing keys are within the store's limit", "[attacks][integration]") {
  const StoreProcess store = store_of(16);
  std::vector<RawConnection> strangers;
  int refused = 0;
  for (int stranger = 0; stranger < 20; ++stranger) {
    std::vector<std::string> keys;
    for (std::size_t i = 0; i < 100'000; ++i) keys.push_back("/" + std::to_string(i));
    std::string wait;
    append_request(wait, {.op = Op::Wait, .keys = std::move(keys)});
    strangers.push_back(greeted(store));
    refused += outlives(strangers.back(), wait) ? 0 : 1;
  }
  CHECK(refused > 0);
  CHECK(store.peak() < 2 * 16 * kMiB + kProgram);  // what is kept, and a request that is not whole yet
  strangers.clear();
  check_works(store);
}

TEST_CASE("memory: queues of one element are within the store's limit", "[attacks][integration]") {
  const StoreProcess store = store_of(16);
  std::string pushes;
  for (std::size_t i = 0; i < 200'000; ++i) {
    append_request(pushes, {.op = Op::QueuePush, .keys = {"/" + std::to_string(i)}, .values = {"v"}});
  }
  RawConnection stranger = greeted(store);
  CHECK_FALSE(outlives(stranger, pushes));
  CHECK(store.peak() < 16 * kMiB + kProgram);
}

TEST_CASE("memory: answers that strangers do not read are within the limit, those of dropped ones included",
          "[attacks][integration]") {
  const StoreProcess store = store_of(32);
  TcpStore owner("127.0.0.1", store.port, kDeadline);
  owner.set("large", std::string(8 * kMiB, 'v'));
  owner.append("large", std::string(7 * kMiB, 'v'));
  REQUIRE(owner.check({"large"}));
  std::string gets;
  for (int i = 0; i < 4; ++i) append_request(gets, {.op = Op::Get, .keys = {"/large"}});
  std::vector<RawConnection> strangers;
  for (int i = 0; i < 40; ++i) strangers.push_back(greeted(store));
  for (RawConnection& stranger : strangers) stranger.send(gets);
  for (RawConnection& stranger : strangers) stranger.receive(1);  // it was answered, or dropped
  CHECK(store.peak() < (32 + 32) * kMiB + kProgram);
  strangers.clear();
  check_works(store);
}

TEST_CASE("memory: a value is not copied for more watchers than there is room for", "[attacks][integration]") {
  const StoreProcess store = store_of(32);
  std::vector<RawConnection> strangers;
  for (int i = 0; i < 40; ++i) {
    strangers.push_back(RawConnection::to(store.port));
    REQUIRE(strangers.back().send(from_hex("07 0200000000000000 2f6b")));
    REQUIRE(strangers.back().receive(1) == "\x03");
  }
  TcpStore owner("127.0.0.1", store.port, kDeadline);
  owner.set("k", std::string(7 * kMiB, 'v'));
  CHECK(owner.check({"k"}));
  CHECK(store.peak() < (32 + 32) * kMiB + kProgram);
  CHECK(owner.get("k").size() == 7 * kMiB);
}

TEST_CASE("memory: a worker of libddp does not believe a length that its store announces", "[attacks][integration]") {
  RawConnection listener = RawConnection::unconnected();
  sockaddr_in address = RawConnection::loopback(0);
  socklen_t size = sizeof address;
  REQUIRE(::bind(listener.fd(), reinterpret_cast<const sockaddr*>(&address), size) == 0);
  REQUIRE(::getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  REQUIRE(::listen(listener.fd(), 8) == 0);
  Process worker({WORKER_BINARY}, {.environment = {{"RANK", "1"},
                                                   {"LOCAL_RANK", "1"},
                                                   {"WORLD_SIZE", "2"},
                                                   {"LOCAL_WORLD_SIZE", "2"},
                                                   {"MASTER_ADDR", "127.0.0.1"},
                                                   {"MASTER_PORT", std::to_string(ntohs(address.sin_port))}}});

  // Answers what has an answer of a fixed size, and announces 2^60 bytes to the first request for a value.
  RawConnection client(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  Decoder decoder;
  std::size_t sent = 0;
  while (sent == 0) {
    const std::string byte = client.receive(1);
    REQUIRE(byte.size() == 1);
    std::string_view input = byte;
    const Decoded decoded = decoder.decode(input);
    const auto* request = std::get_if<RequestView>(&decoded);
    if (request == nullptr) continue;
    std::string answer;
    switch (request->op) {
      case Op::GetNumKeys:
      case Op::Add:
        append_i64(answer, 1);
        break;
      case Op::Wait:
      case Op::Check:
        append_answer(answer, Answer::Ready);
        break;
      case Op::Get:
      case Op::MultiGet:
      case Op::CompareSet: {
        append_i64(answer, std::int64_t{1} << 60);
        while (sent < 200 * kMiB && client.send(answer)) {
          sent += answer.size();
          answer.assign(kMiB, 'j');
        }
        break;
      }
      default:
        break;
    }
    if (sent == 0) client.send(answer);
  }
  CHECK(sent < 64 * kMiB);  // what sockets hold, and not what the worker would take
  const auto result = worker.wait();
  CHECK(result.code != 0);
  CHECK_THAT(result.err, Catch::Contains("the store announces an answer of 1152921504606846976 bytes or more; it may "
                                         "send 268435472 (is another program at this port?)"));
  CHECK(worker.left_over().empty());
}
