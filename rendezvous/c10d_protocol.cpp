// SPDX-License-Identifier: BSD-3-Clause
// One table says what follows each operation; the decoder and the encoder both walk it.
#include "rendezvous/c10d_protocol.hpp"

#include <algorithm>
#include <utility>

#include "rendezvous/check.hpp"

namespace ddp::rendezvous {
namespace {

constexpr std::array<char, 4> kMagic = {'\xce', '\xf7', '\x85', '\x3c'};  // torch TCPStore.cpp, validationMagicNumber

// Fields: k key, v value, n 64-bit number, p PING's 32-bit nonce. Counted: a u64 count first, then so many repetitions.
struct Shape {
  std::string_view fields;
  bool counted = false;
};

Shape shape_of(Op op) {
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

void append_integer(std::string& out, std::uint64_t number, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) out.push_back(static_cast<char>(number >> (8 * i) & 0xff));
}

}  // namespace

Decoded Decoder::decode(std::string_view& input) {
  while (step_ != Step::Complete && step_ != Step::Broken && advance(input)) {
  }
  if (step_ == Step::Broken) return Malformed{malformed_};
  if (step_ == Step::Complete) return finish();
  return NeedMore{};
}

bool Decoder::advance(std::string_view& input) {
  switch (step_) {
    case Step::FirstByte:
      if (input.empty()) return false;
      step_ = Step::Operation;
      if (input.front() != 0) {
        generation_ = Generation::Old;
      } else {
        input.remove_prefix(1);
        step_ = Step::Magic;
      }
      return true;
    case Step::Magic:
      return read_magic(input);
    case Step::Operation: {
      const auto byte = take_integer(input, 1);
      if (byte) begin(*byte);
      return byte.has_value();
    }
    case Step::Count:
      return read_count(input);
    case Step::Field:
      return read_field(input);
    case Step::Text:
      return read_text(input);
    case Step::Complete:
    case Step::Broken:
      break;
  }
  DDP_CHECK(false, static_cast<int>(step_));
}

// After a 00: the magic makes it Modern's VALIDATE. At the first other byte it was the SET of an old client, and what
// matched so far is the beginning of its key's length.
bool Decoder::read_magic(std::string_view& input) {
  if (input.empty()) return false;
  if (input.front() != kMagic[number_size_]) {
    generation_ = Generation::Old;
    begin(0);
    return true;
  }
  number_[number_size_++] = input.front();
  input.remove_prefix(1);
  if (number_size_ == kMagic.size()) {
    generation_ = Generation::Modern;
    number_size_ = 0;
    step_ = Step::Operation;
  }
  return true;
}

void Decoder::begin(std::uint64_t byte) {
  const bool modern = generation_ == Generation::Modern;
  if (modern && byte == 0) return void(reject("VALIDATE came twice"));
  if (byte > (modern ? 18U : generation_ == Generation::A ? 8U : 11U)) {
    return void(reject("unknown operation " + std::to_string(byte)));
  }
  if (generation_ == Generation::Old && byte == 7) generation_ = first_request_ ? Generation::A : Generation::C;
  if (generation_ == Generation::Old && byte > 8) generation_ = Generation::C;

  if (generation_ == Generation::A && byte >= 7) {
    request_.op = byte == 7 ? Op::WatchKey : Op::DeleteKey;
  } else {
    request_.op = static_cast<Op>(modern ? byte : byte + 1);
  }
  const Shape shape = shape_of(request_.op);
  fields_ = shape.fields;
  field_ = 0;
  repetitions_ = 1;
  step_ = shape.counted ? Step::Count : fields_.empty() ? Step::Complete : Step::Field;
}

bool Decoder::read_count(std::string_view& input) {
  const auto count = take_integer(input, 8);
  if (!count) return false;
  if (*count > kMaxKeysPerRequest) return reject("a request with " + std::to_string(*count) + " keys");
  repetitions_ = *count;
  step_ = *count == 0 ? Step::Complete : Step::Field;
  return true;
}

bool Decoder::read_field(std::string_view& input) {
  if (undecided() && !input.empty()) generation_ = Generation::C;
  const char kind = fields_[field_];
  const auto number = take_integer(input, kind == 'p' ? 4 : 8);
  if (!number) return false;
  if (kind == 'n' || kind == 'p') {
    request_.number = static_cast<std::int64_t>(*number);
    next_field();
    return true;
  }
  if (kind == 'k' && *number > kMaxKeyBytes) return reject("a key of " + std::to_string(*number) + " bytes");
  if (kind == 'v' && *number > kMaxValueBytes) return reject("a value of " + std::to_string(*number) + " bytes");
  (kind == 'k' ? request_.keys : request_.values).emplace_back();
  missing_ = *number;
  step_ = Step::Text;
  return true;
}

bool Decoder::read_text(std::string_view& input) {
  std::string& text = fields_[field_] == 'k' ? request_.keys.back() : request_.values.back();
  const std::size_t size = std::min<std::size_t>(missing_, input.size());
  text.append(input.substr(0, size));
  input.remove_prefix(size);
  missing_ -= size;
  if (missing_ > 0) return false;
  next_field();
  return true;
}

void Decoder::next_field() {
  step_ = Step::Field;
  if (++field_ < fields_.size()) return;
  field_ = 0;
  if (--repetitions_ == 0) step_ = Step::Complete;
}

// An integer may come in pieces.
std::optional<std::uint64_t> Decoder::take_integer(std::string_view& input, std::size_t size) {
  const std::size_t part = std::min(size - number_size_, input.size());
  std::copy_n(input.data(), part, number_.data() + number_size_);
  input.remove_prefix(part);
  number_size_ += part;
  if (number_size_ < size) return std::nullopt;
  number_size_ = 0;
  return read_integer({number_.data(), size});
}

bool Decoder::reject(std::string reason) {
  malformed_ = std::move(reason);
  step_ = Step::Broken;
  return true;
}

bool Decoder::undecided() const {
  return generation_ == Generation::Old && request_.op == Op::Append && step_ == Step::Field && field_ == 1;
}

Request Decoder::settle() {
  DDP_CHECK(undecided());
  generation_ = Generation::A;
  request_.op = Op::DeleteKey;
  return finish();
}

Request Decoder::finish() {
  first_request_ = false;
  step_ = Step::Operation;
  request_.generation = generation_;
  return std::exchange(request_, {});
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
  for (std::size_t i = bytes.size(); i > 0; --i) number = number << 8 | static_cast<unsigned char>(bytes[i - 1]);
  return number;
}

}  // namespace ddp::rendezvous
