// SPDX-License-Identifier: BSD-3-Clause
// The c10d TCPStore wire protocol, both ways, without any I/O: bytes to requests (server), requests to bytes (client),
// replies to bytes (server). No framing, no version field: a connection's first bytes tell which PyTorch speaks.
//
//   generation   PyTorch       first bytes        numbers
//   A            1.9 – 2.0     an operation 0–8   SET 0 … GETNUMKEYS 6, WATCH_KEY 7, DELETE_KEY 8
//   C            2.1           an operation 0–11  as Modern, minus one: SET 0 … DELETE_KEY 7, APPEND 8 … CANCEL_WAIT 11
//   Modern       2.2 – today   00 CE F7 85 3C     SET 1 … BARRIER 18 (PING since 2.5, queues 2.8, 17 2.10, 18 2.12)
//
// A SET of A or C also begins with 00, but as its key length CE F7 85 3C would mean a key of a gigabyte.
// A and C differ only from operation 7 on, and until one comes the generation is just Old:
//   07  first on its connection: A's WATCH_KEY (A watches on a connection of its own); later: C's DELETE_KEY.
//   08  "08 key" is A's DELETE_KEY, "08 key value" C's APPEND. Bytes behind the key: C. None for a moment: A, whose
//       client now waits for the answer. The decoder says undecided(), the driver waits kUndecidedGrace, then settle().
// Process groups of either generation never send these; only scripts that use a TCPStore directly do.
//
// Integers are little-endian on every machine that runs PyTorch; a string is a u64 length and its bytes.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ddp::rendezvous {

// PyTorch's own libuv server's limits, to the byte (torch TCPStoreLibUvBackend.cpp): whoever passes them is no client.
inline constexpr std::size_t kMaxKeyBytes = 8 * 1024;
inline constexpr std::size_t kMaxValueBytes = 8 * 1024 * 1024;
inline constexpr std::size_t kMaxKeysPerRequest = 128 * 1024;
// How long "08 key" may stay ambiguous. Longer than any gap inside one client's write, shorter than a user notices.
inline constexpr std::chrono::milliseconds kUndecidedGrace{100};

enum class Generation { Unknown, Old, A, C, Modern };  // Unknown: nothing decided yet; Old: A or C

// The values are Modern's numbers.
enum class Op : std::uint8_t {
  Set = 1,
  CompareSet,
  Get,
  Add,
  Check,
  Wait,
  GetNumKeys,
  DeleteKey,
  Append,
  MultiGet,
  MultiSet,
  CancelWait,
  Ping,
  QueuePush,
  QueuePop,
  QueueLen,
  ListKeys,
  Barrier,
  WatchKey = 0xff,  // A only
};

struct Request {
  Op op = Op::Ping;
  std::vector<std::string> keys{};    // as on the wire: "/" + what the user said, except the worker counter "init/"
  std::vector<std::string> values{};  // CompareSet: expected, desired; MultiSet: one a key
  std::int64_t number = 0;            // Add: delta; Barrier: world size; Ping: nonce
  Generation generation = Generation::Modern;

  const std::string& key() const { return keys.front(); }
  const std::string& value() const { return values.front(); }
  bool operator==(const Request&) const = default;
};

struct NeedMore {};
struct Malformed {
  std::string reason;
};
using Decoded = std::variant<NeedMore, Request, Malformed>;

// One per connection. Work is linear in the bytes fed, memory follows the bytes that came, never a length they claim.
class Decoder {
 public:
  // Takes bytes from the front of input until a request is complete or input is empty. Malformed is final.
  Decoded decode(std::string_view& input);

  bool undecided() const;
  Request settle();  // only while undecided(): it was A's DELETE_KEY

  Generation generation() const { return generation_; }

 private:
  enum class Step { FirstByte, Magic, Operation, Count, Field, Text, Complete, Broken };

  bool advance(std::string_view& input);  // one step; false: it needs more input
  bool read_magic(std::string_view& input);
  bool read_count(std::string_view& input);
  bool read_field(std::string_view& input);
  bool read_text(std::string_view& input);
  std::optional<std::uint64_t> take_integer(std::string_view& input, std::size_t size);
  void begin(std::uint64_t byte);
  void next_field();
  bool reject(std::string reason);
  Request finish();

  Generation generation_ = Generation::Unknown;
  Step step_ = Step::FirstByte;
  std::string malformed_;  // why, once Broken
  bool first_request_ = true;
  Request request_;                // under way
  std::string_view fields_;        // of one repetition of it
  std::size_t field_ = 0;          // index into fields_
  std::uint64_t repetitions_ = 0;  // still to read, this one included
  std::uint64_t missing_ = 0;      // bytes of the text under way
  std::array<char, 8> number_{};   // an integer under way, and how
  std::size_t number_size_ = 0;    // many of its bytes are there
};

// What a Modern client sends.
void append_validate(std::string& out);
void append_request(std::string& out, const Request& request);

// What a server answers: a byte, a number, or bytes behind their length.
enum class Answer : std::uint8_t {
  Ready = 0,     // to CHECK
  NotReady = 1,  // to CHECK
  StopWaiting = 0,
  WaitCanceled = 1,
  KeyUpdated = 0,  // to a WATCH_KEY, followed by key, old and new value
  KeyCreated = 1,
  KeyDeleted = 2,
  CallbackRegistered = 3,
};
void append_answer(std::string& out, Answer answer);
void append_u32(std::string& out, std::uint32_t number);
void append_i64(std::string& out, std::int64_t number);
void append_bytes(std::string& out, std::string_view bytes);

std::uint64_t read_integer(std::string_view bytes);  // little-endian, at most 8 bytes

}  // namespace ddp::rendezvous
