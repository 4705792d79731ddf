// SPDX-License-Identifier: BSD-3-Clause
// One table says what follows each operation; the decoder and the encoder both walk it.
#include "rendezvous/store/c10d_protocol.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "rendezvous/base/check.hpp"

namespace ddp::rendezvous {
namespace {

constexpr std::array<char, 4> kMagic = {'\xce', '\xf7', '\x85', '\x3c'};  // torch TCPStore.cpp, validationMagicNumber

// Fields: k key, v value, n 64-bit number, p PING's 32-bit nonce. Counted: a u64 count, then the fields that many
// times.
struct Shape {
  std::string_view fields;
  bool counted = false;
};

constexpr Shape shape_of(Op op) {
  switch (op) {
    case Op::Set:
      return {"kv"};
    case Op::CompareSet:
      return {"kvv"};
    case Op::Get:
      return {"k"};
    case Op::Add:
      return {"kn"};
    case Op::Check:
      return {"k", true};
    case Op::Wait:
      return {"k", true};
    case Op::GetNumKeys:
      return {""};
    case Op::DeleteKey:
      return {"k"};
    case Op::Append:
      return {"kv"};
    case Op::MultiGet:
      return {"k", true};
    case Op::MultiSet:
      return {"kv", true};
    case Op::CancelWait:
      return {""};
    case Op::Ping:
      return {"p"};
    case Op::QueuePush:
      return {"kv"};
    case Op::QueuePop:
      return {"k"};
    case Op::QueueLen:
      return {"k"};
    case Op::ListKeys:
      return {""};
    case Op::Barrier:
      return {"kn"};
    case Op::WatchKey:
      return {"k"};
  }
  DDP_CHECK(false, static_cast<int>(op));
}

static_assert(std::endian::native == std::endian::little);  // as is every machine that PyTorch is built for

void append_integer(std::string& out, std::uint64_t number, std::size_t size) {
  char bytes[sizeof number];
  std::memcpy(bytes, &number, sizeof number);
  out.append(bytes, size);
}

}  // namespace

std::int64_t Fields::take(std::size_t size) {
  const std::uint64_t number = read_integer(rest_.substr(0, size));
  rest_.remove_prefix(size);
  return static_cast<std::int64_t>(number);
}

std::string_view Fields::text() {
  const auto size = static_cast<std::size_t>(take(8));
  const std::string_view text = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return text;
}

// A request that lies whole in the input is left there. The bytes of an incomplete one are copied as they arrive, but
// none behind it, so that the next request may lie whole in the input again.
Decoded Decoder::decode(std::string_view& input) {
  if (std::exchange(handed_out_, false)) unfinished_.reset();
  while (!malformed_) {
    // The next request begins in the input. Is it whole?
    if (!unfinished_) {
      if (input.empty()) return NeedMore{};
      Scan fresh;
      if (scan(input, fresh)) {
        const std::string_view request = input.substr(0, fresh.at);
        input.remove_prefix(fresh.at);
        if (fresh.piece == Piece::End) return finish(request, fresh);
      } else if (!malformed_) {
        unfinished_ = std::make_unique<Unfinished>(Unfinished{std::string(input), fresh});
        input = {};
      }
      continue;
    }
    // Complete the request that began in earlier input.
    if (input.empty()) return NeedMore{};
    Unfinished& request = *unfinished_;
    const std::size_t part = std::min(request.scan.need, input.size());
    request.bytes.append(input.substr(0, part));
    input.remove_prefix(part);
    if (!scan(request.bytes, request.scan)) continue;
    handed_out_ = request.scan.piece == Piece::End;
    if (handed_out_) return finish(request.bytes, request.scan);
    unfinished_.reset();
  }
  return Malformed{*malformed_};
}

bool Decoder::scan(std::string_view bytes, Scan& scan) {
  while (scan.piece != Piece::End && scan.piece != Piece::EndOfValidate) {
    if (is_undecided(scan)) {
      scan.need = bytes.size() > scan.at ? 0 : 1;
      if (scan.need > 0) return false;
      generation_ = Generation::C;
    }
    if (scan.at + scan.size > kMaxRequestBytes) reject("a request of more than 256 MiB");
    if (malformed_) return false;
    if (bytes.size() - scan.at < scan.size) {
      scan.need = scan.size - (bytes.size() - scan.at);
      return false;
    }
    const std::string_view piece = bytes.substr(scan.at, scan.size);
    scan.at += scan.size;
    handle_piece(piece, bytes.substr(scan.at), scan);
  }
  return true;
}

// `rest` is the input behind the piece, as far as it has arrived.
void Decoder::handle_piece(std::string_view piece, std::string_view rest, Scan& scan) {
  switch (scan.piece) {
    case Piece::Operation:
      if (generation_ == Generation::Unknown && piece.front() == 0) {
        scan.piece = Piece::Magic;
      } else {
        if (generation_ == Generation::Unknown) generation_ = Generation::Old;
        begin(static_cast<std::uint8_t>(piece.front()), scan);
      }
      return;
    case Piece::Magic:
      // The magic behind a 00 makes it Modern's VALIDATE. At the first byte that differs, it was the SET of an old
      // client, and the bytes that matched are the beginning of its key's length.
      if (piece.front() != kMagic[scan.at - 2]) {
        generation_ = Generation::Old;
        scan.at = 1;
        begin(0, scan);
      } else if (scan.at == 1 + kMagic.size()) {
        generation_ = Generation::Modern;
        scan.piece = Piece::EndOfValidate;
      }
      return;
    case Piece::Count: {
      const std::uint64_t count = read_integer(piece);
      if (count > kMaxKeysPerRequest) return reject("a request with " + std::to_string(count) + " keys");
      scan.repetitions = count;
      if (count == 0)
        scan.piece = Piece::End;
      else
        go_to(scan, 0);
      return;
    }
    case Piece::Length: {
      const bool is_key = shape_of(scan.op).fields[scan.field] == 'k';
      const std::uint64_t length = read_integer(piece);
      if (length > (is_key ? kMaxKeyBytes : kMaxValueBytes)) {
        return reject((is_key ? "a key of " : "a value of ") + std::to_string(length) + " bytes");
      }
      scan.piece = Piece::Text;
      scan.size = static_cast<std::size_t>(length);
      if (rest.size() < scan.size) return;
      scan.at += scan.size;  // the text has arrived already: skip its own turn
      return go_to(scan, scan.field + 1U);
    }
    case Piece::Number:
    case Piece::Text:
      return go_to(scan, scan.field + 1U);
    case Piece::End:
    case Piece::EndOfValidate:
      break;
  }
  DDP_CHECK(false, static_cast<int>(scan.piece));
}

void Decoder::begin(std::uint8_t byte, Scan& scan) {
  const bool modern = generation_ == Generation::Modern;
  if (modern && byte == 0) return reject("VALIDATE came twice");
  if (byte > (modern ? 18U : generation_ == Generation::A ? 8U : 11U)) {
    return reject("unknown operation " + std::to_string(byte));
  }
  if (generation_ == Generation::Old && byte == 7) generation_ = first_request_ ? Generation::A : Generation::C;
  if (generation_ == Generation::Old && byte > 8) generation_ = Generation::C;

  if (generation_ == Generation::A && byte >= 7) {
    scan.op = byte == 7 ? Op::WatchKey : Op::DeleteKey;
  } else {
    scan.op = static_cast<Op>(modern ? byte : byte + 1);
  }
  if (shape_of(scan.op).counted) {
    scan.piece = Piece::Count;
    scan.size = 8;
  } else {
    go_to(scan, 0);
  }
}

// Goes to this field of the current repetition, to the next repetition, or to the end.
void Decoder::go_to(Scan& scan, std::size_t field) {
  const std::string_view fields = shape_of(scan.op).fields;
  if (field == fields.size()) {
    field = 0;
    if (--scan.repetitions == 0 || fields.empty()) {
      scan.piece = Piece::End;
      return;
    }
  }
  scan.field = static_cast<std::uint8_t>(field);
  const char kind = fields[field];
  scan.piece = kind == 'k' || kind == 'v' ? Piece::Length : Piece::Number;
  scan.size = kind == 'p' ? 4 : 8;
}

bool Decoder::is_undecided(const Scan& scan) const {
  return generation_ == Generation::Old && scan.op == Op::Append && scan.piece == Piece::Length && scan.field == 1;
}

bool Decoder::undecided() const { return unfinished_ && is_undecided(unfinished_->scan); }

RequestView Decoder::settle() {
  DDP_CHECK(undecided());
  generation_ = Generation::A;
  unfinished_->scan.op = Op::DeleteKey;
  handed_out_ = true;
  return finish(unfinished_->bytes, unfinished_->scan);
}

RequestView Decoder::finish(std::string_view request, const Scan& scan) {
  first_request_ = false;
  return {scan.op, generation_, request.substr(1)};
}

void append_validate(std::string& out) {
  out.push_back(0);
  out.append(kMagic.data(), kMagic.size());
}

void append_request(std::string& out, const Request& request) {
  const Shape shape = shape_of(request.op);
  out.push_back(static_cast<char>(request.op));
  auto key = request.keys.begin();
  auto value = request.values.begin();
  if (shape.counted) append_integer(out, request.keys.size(), 8);
  for (std::size_t i = shape.counted ? request.keys.size() : 1; i > 0; --i) {
    for (const char kind : shape.fields) {
      switch (kind) {
        case 'k':
          append_bytes(out, *key++);
          break;
        case 'v':
          append_bytes(out, *value++);
          break;
        case 'n':
          append_i64(out, request.number);
          break;
        case 'p':
          append_u32(out, static_cast<std::uint32_t>(request.number));
          break;
        default:
          DDP_CHECK(false, kind);
      }
    }
  }
}

void append_answer(std::string& out, Answer answer) { out.push_back(static_cast<char>(answer)); }
void append_u32(std::string& out, std::uint32_t number) { append_integer(out, number, 4); }
void append_i64(std::string& out, std::int64_t number) { append_integer(out, static_cast<std::uint64_t>(number), 8); }

void append_bytes(std::string& out, std::string_view bytes) {
  append_integer(out, bytes.size(), 8);
  out.append(bytes);
}

std::uint64_t read_integer(std::string_view bytes) {
  std::uint64_t number = 0;
  if (bytes.size() == sizeof number) {  // nearly always; then it is one load, and no call of memcpy
    std::memcpy(&number, bytes.data(), sizeof number);
  } else {
    std::memcpy(&number, bytes.data(), bytes.size());
  }
  return number;
}

}  // namespace ddp::rendezvous
