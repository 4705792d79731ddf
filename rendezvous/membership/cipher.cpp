// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/membership/cipher.hpp"

#include <sodium.h>

#include <algorithm>
#include <utility>

#include "rendezvous/base/check.hpp"
#include "rendezvous/base/length_bytes.hpp"

namespace ddp::rendezvous {
namespace {

constexpr std::size_t kMaxIdleBytes = 16 << 10;  // what stays of a buffer after a larger frame

static_assert(std::tuple_size_v<Secret::Bytes> == crypto_auth_hmacsha256_KEYBYTES);
static_assert(std::tuple_size_v<Secret::Bytes> == crypto_scalarmult_SCALARBYTES);
static_assert(std::tuple_size_v<Secret::Bytes> == crypto_secretstream_xchacha20poly1305_KEYBYTES);
static_assert(std::tuple_size_v<PublicKey> == crypto_scalarmult_BYTES);
static_assert(std::tuple_size_v<Proof> == crypto_auth_hmacsha256_BYTES);
static_assert(kSealBytes == crypto_secretstream_xchacha20poly1305_ABYTES);

// Keeps what is derived here from being of any use in another protocol that has the same secret.
constexpr std::string_view kPurpose = "ddprun agent link";
constexpr std::size_t kHeaderBytes = crypto_secretstream_xchacha20poly1305_HEADERBYTES;

const unsigned char* bytes_of(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }
unsigned char* bytes_of(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

Secret named(const Secret& base, std::string_view name) {
  Secret::Bytes value;
  crypto_auth_hmacsha256(value.data(), bytes_of(name), name.size(), base.bytes().data());
  const Secret result(value);
  sodium_memzero(value.data(), value.size());
  return result;
}

}  // namespace

KeyPair::KeyPair(const Secret& private_key) : private_key_(private_key) {
  crypto_scalarmult_base(public_key_.data(), private_key_.bytes().data());
}

std::optional<LinkKeys> agree(const KeyPair& own, const PublicKey& theirs, const std::optional<Secret>& secret,
                              std::string_view transcript) {
  Secret::Bytes bytes;
  if (crypto_scalarmult(bytes.data(), own.private_key().bytes().data(), theirs.data()) != 0) return std::nullopt;
  crypto_auth_hmacsha256_state state;
  const Secret::Bytes zeros{};
  crypto_auth_hmacsha256_init(&state, secret ? secret->bytes().data() : zeros.data(), zeros.size());
  crypto_auth_hmacsha256_update(&state, bytes_of(kPurpose), kPurpose.size());
  crypto_auth_hmacsha256_update(&state, bytes.data(), bytes.size());
  crypto_auth_hmacsha256_update(&state, bytes_of(transcript), transcript.size());
  crypto_auth_hmacsha256_final(&state, bytes.data());
  const Secret base(bytes);
  sodium_memzero(bytes.data(), bytes.size());
  sodium_memzero(&state, sizeof state);
  return LinkKeys{named(base, "agent's proof").bytes(), named(base, "coordinator's proof").bytes(),
                  named(base, "agent's frames"), named(base, "coordinator's frames")};
}

bool is_same(const Proof& proof, std::string_view bytes) {
  return bytes.size() == proof.size() && sodium_memcmp(proof.data(), bytes.data(), proof.size()) == 0;
}

struct LinkCipher::State {
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    sodium_memzero(&out, sizeof out);
    sodium_memzero(&in, sizeof in);
  }

  std::string header;  // to be sent with the first frame
  crypto_secretstream_xchacha20poly1305_state out;
  Secret key_in{Secret::Bytes{}};
  bool has_header = false;  // the other side's has come
  crypto_secretstream_xchacha20poly1305_state in;
  std::string received;  // the beginning of a header or frame
};

LinkCipher::LinkCipher(LinkRole own, const LinkKeys& keys) : state_(std::make_unique<State>()) {
  const bool is_agent = own == LinkRole::Agent;
  state_->header.resize(kHeaderBytes);
  crypto_secretstream_xchacha20poly1305_init_push(
      &state_->out, bytes_of(state_->header),
      (is_agent ? keys.agents_frames : keys.coordinators_frames).bytes().data());
  state_->key_in = is_agent ? keys.coordinators_frames : keys.agents_frames;
}

LinkCipher::~LinkCipher() = default;
LinkCipher::LinkCipher(LinkCipher&&) noexcept = default;
LinkCipher& LinkCipher::operator=(LinkCipher&&) noexcept = default;

std::string LinkCipher::seal(std::string_view frame) {
  DDP_CHECK(frame.size() >= kLengthBytes && length_at_begin(frame) == frame.size() - kLengthBytes, frame.size());
  std::string bytes = std::exchange(state_->header, {});
  bytes += frame.substr(0, kLengthBytes);
  const std::size_t begin = bytes.size();
  bytes.resize(begin + frame.size() - kLengthBytes + kSealBytes);
  crypto_secretstream_xchacha20poly1305_push(&state_->out, bytes_of(bytes) + begin, nullptr,
                                             bytes_of(frame.substr(kLengthBytes)), frame.size() - kLengthBytes,
                                             bytes_of(frame), kLengthBytes, /*tag=*/0);
  return bytes;
}

bool LinkCipher::open(std::string_view bytes, std::string& frames) {
  std::string& received = state_->received;
  received += bytes;
  std::string_view rest = received;
  if (!state_->has_header) {
    if (rest.size() < kHeaderBytes) return true;
    crypto_secretstream_xchacha20poly1305_init_pull(&state_->in, bytes_of(rest), state_->key_in.bytes().data());
    state_->has_header = true;
    rest.remove_prefix(kHeaderBytes);
  }
  while (rest.size() >= kLengthBytes) {
    const std::size_t length = length_at_begin(rest);
    if (length > kMaxFrameBytes) return false;  // no ddprun seals such a frame
    const std::size_t sealed = length + kSealBytes;
    if (rest.size() < kLengthBytes + sealed) break;
    frames += rest.substr(0, kLengthBytes);
    const std::size_t begin = frames.size();
    frames.resize(begin + length);
    unsigned char tag = 0;
    if (crypto_secretstream_xchacha20poly1305_pull(&state_->in, bytes_of(frames) + begin, nullptr, &tag,
                                                   bytes_of(rest.substr(kLengthBytes)), sealed, bytes_of(rest),
                                                   kLengthBytes) != 0) {
      frames.resize(begin - kLengthBytes);
      return false;
    }
    rest.remove_prefix(kLengthBytes + sealed);
  }
  received.erase(0, received.size() - rest.size());
  if (received.empty() && received.capacity() > kMaxIdleBytes)
    received.shrink_to_fit();  // thousands of links live for days
  return true;
}

}  // namespace ddp::rendezvous
