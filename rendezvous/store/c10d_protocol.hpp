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
//   08  "08 key" is A's DELETE_KEY, "08 key value" C's APPEND. Bytes behind the key mean C. No bytes for a moment mean
//       A, whose client now waits for the answer: the decoder is undecided(), the driver waits kUndecidedGrace and then
//       calls settle().
// Process groups of either generation never send these; only scripts that use a TCPStore directly do.
//
// Integers are little-endian on every machine that runs PyTorch; a string is a u64 length and its bytes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/base/decoded.hpp"

namespace ddp::rendezvous {

// Limits of PyTorch's own libuv server, to the byte (torch TCPStoreLibUvBackend.cpp). No client exceeds them.
inline constexpr std::size_t kMaxKeyBytes = 8 * 1024;
inline constexpr std::size_t kMaxValueBytes = 8 * 1024 * 1024;
inline constexpr std::size_t kMaxKeysPerRequest = 128 * 1024;
// The largest number of keys and values of the largest sizes would be a terabyte. A MULTI_SET for 100,000 ranks with
// 1 KiB each is 100 MB.
inline constexpr std::size_t kMaxRequestBytes = 256 * 1024 * 1024;
// Limit of one answer: ours sends no longer one, and libddp's client reads no longer one. A MULTI_GET may name an 8 MiB
// value 131,072 times. NCCL at 98,304 ranks asks for 105 KB, Gloo at 16,384 for 17 MB.
inline constexpr std::size_t kMaxReplyBytes = 256 * 1024 * 1024;
// Time for which "08 key" may stay ambiguous: longer than any gap inside one client's write, shorter than a user
// notices.
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

// A request as a client makes it.
struct Request {
  Op op = Op::Ping;
  std::vector<std::string> keys{};    // as on the wire: "/" + the user's key, except the worker counter "init/"
  std::vector<std::string> values{};  // CompareSet: expected, desired; MultiSet: one for each key
  std::int64_t number = 0;            // Add: delta; Barrier: world size; Ping: nonce
  Generation generation = Generation::Modern;

  const std::string& key() const { return keys.front(); }
  const std::string& value() const { return values.front(); }
  bool operator==(const Request&) const = default;
};

// A request as a server receives it: whole, checked, and left where it lies. Nothing is copied out of it.
struct RequestView {
  Op op = Op::Ping;
  Generation generation = Generation::Modern;
  std::string_view fields;  // everything behind the operation; read it with Fields
};

// Reads a RequestView's fields, which are known to be whole, one after the other.
class Fields {
 public:
  explicit Fields(std::string_view fields) : rest_(fields) {}
  std::string_view text();                   // a key or a value
  std::int64_t number() { return take(8); }  // also the count in front of repeated fields
  std::int64_t nonce() { return take(4); }

 private:
  std::int64_t take(std::size_t size);
  std::string_view rest_;
};

using Decoded = std::variant<NeedMore, RequestView, Malformed>;

// Decodes the requests of one connection. Work is linear in the bytes fed. Memory follows the bytes that arrived, never
// a length that they claim, and is a few words while the connection is between two requests.
class Decoder {
 public:
  // Takes bytes from the front of input until a request is complete or input is empty. The returned request lies in
  // input or in this decoder, so it is valid until the next call and while input is. Malformed is final.
  Decoded decode(std::string_view& input);

  bool undecided() const;
  // Decides that the request was A's DELETE_KEY and returns it. Only while undecided().
  RequestView settle();

  Generation generation() const { return generation_; }
  // Returns how many bytes are allocated for an incomplete request.
  std::size_t held() const { return unfinished_ ? sizeof *unfinished_ + unfinished_->bytes.capacity() : 0; }

 private:
  // A request is scanned piece by piece: its operation, a count, a length, a text, ...
  enum class Piece : std::uint8_t { Operation, Magic, Count, Number, Length, Text, End, EndOfValidate };
  struct Scan {
    Piece piece = Piece::Operation;  // the next piece
    std::size_t at = 0;              // offset at which it begins
    std::size_t size = 1;            // its bytes
    std::size_t need = 0;            // how many of them are missing
    Op op = Op::Ping;
    std::uint8_t field = 0;         // index in one repetition
    std::uint64_t repetitions = 1;  // still to scan, this one included
  };
  struct Unfinished {
    std::string bytes;
    Scan scan;
  };

  bool scan(std::string_view bytes, Scan& scan);  // false: more bytes are needed
  // Inlined into scan() for requests of a thousand pieces.
  inline void handle_piece(std::string_view piece, std::string_view rest, Scan& scan);
  inline void go_to(Scan& scan, std::size_t field);
  void begin(std::uint8_t byte, Scan& scan);
  bool is_undecided(const Scan& scan) const;
  RequestView finish(std::string_view request, const Scan& scan);
  void reject(std::string reason) { malformed_ = std::make_unique<std::string>(std::move(reason)); }

  Generation generation_ = Generation::Unknown;
  bool first_request_ = true;
  bool handed_out_ = false;                 // unfinished_ became a whole request, which decode() returned
  std::unique_ptr<Unfinished> unfinished_;  // null between requests, and while requests arrive whole
  std::unique_ptr<std::string> malformed_;  // the reason, once the input is malformed
};

// Append what a Modern client sends.
void append_validate(std::string& out);
void append_request(std::string& out, const Request& request);

// The one-byte answers of a server. Other answers are a number, or bytes behind their length.
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
