// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/link/handshake.hpp"

#include <algorithm>
#include <utility>

namespace ddp::rendezvous {
namespace {

// The preface: name, version, mode, job, nonce.
constexpr std::string_view kName =
    "\xdd"
    "ddprun";
constexpr std::size_t kVersionAt = kName.size();
constexpr std::size_t kModeAt = kVersionAt + 1;
constexpr std::size_t kJobAt = kModeAt + 1;
constexpr std::size_t kNonceAt = kJobAt + std::tuple_size_v<JobTag>;
static_assert(kNonceAt + std::tuple_size_v<Nonce> == kLinkPrefaceBytes);

constexpr char kWithoutSecret = 0;
constexpr char kWithSecret = 1;
constexpr char kSecretVariable[] = "DDPRUN_SECRET_FILE";
constexpr std::size_t kShownBytes = 16;  // quoted at most from what a stranger sent

std::string make_preface(bool has_secret, const JobTag& job, const Nonce& nonce) {
  std::string bytes(kName);
  bytes.push_back(static_cast<char>(kLinkVersion));
  bytes.push_back(has_secret ? kWithSecret : kWithoutSecret);
  bytes.append(job.begin(), job.end());
  bytes.append(nonce.begin(), nonce.end());
  return bytes;
}

// Moves bytes from the front of `from` until `to` has `size` bytes. Returns whether it has.
bool fill(std::string& to, std::size_t size, std::string_view& from) {
  const std::size_t count = std::min(size - to.size(), from.size());
  to.append(from.substr(0, count));
  from.remove_prefix(count);
  return to.size() == size;
}

bool is_name_so_far(std::string_view bytes) {
  return bytes.substr(0, kName.size()) == kName.substr(0, std::min(bytes.size(), kName.size()));
}

// Returns the version, or 0 if it has not come yet.
int version_in(std::string_view preface) {
  return preface.size() > kVersionAt ? static_cast<unsigned char>(preface[kVersionAt]) : 0;
}

bool is_other_version(std::string_view preface) {
  return preface.size() > kVersionAt && version_in(preface) != kLinkVersion;
}

Nonce nonce_in(std::string_view preface) {
  Nonce nonce;
  std::copy_n(preface.begin() + kNonceAt, nonce.size(), nonce.begin());
  return nonce;
}

JobTag job_in(std::string_view preface) {
  JobTag job;
  std::copy_n(preface.begin() + kJobAt, job.size(), job.begin());
  return job;
}

// Returns `first bytes: "HTTP/1.1 400 Bad"`, or `first bytes: "\x00\x01ab"`.
std::string describe(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes.substr(0, kShownBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= ' ' && byte < 0x7f && c != '"' && c != '\\') {
      text.push_back(c);
    } else {
      text += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return "first bytes: \"" + text + "\"";
}

void append(std::string& to, const Proof& proof) { to.append(proof.begin(), proof.end()); }

HandshakeFailed failed(HandshakeFailed::Kind kind, std::string why) { return {kind, std::move(why)}; }

HandshakeFailed no_coordinator(const std::string& how) {
  return failed(HandshakeFailed::Kind::Stranger, "what answers there is not a ddprun coordinator (" + how + ")");
}

HandshakeFailed no_agent(std::string_view bytes) {
  return failed(HandshakeFailed::Kind::Stranger, "it is not a ddprun agent (" + describe(bytes) + ")");
}

}  // namespace

// ---- The agent's side ----

AgentHandshake::AgentHandshake(std::string where, std::optional<Secret> secret, std::optional<JobTag> job,
                               const Nonce& nonce)
    : where_(std::move(where)), secret_(std::move(secret)), job_(job), own_(nonce) {}

std::string AgentHandshake::preface() const { return make_preface(secret_.has_value(), job_.value_or(JobTag{}), own_); }

HandshakeVerdict AgentHandshake::feed(std::string_view bytes, std::string& answer) {
  if (!has_preface_) {
    const bool is_whole = fill(received_, kLinkPrefaceBytes, bytes);
    if (!is_name_so_far(received_)) return no_coordinator(describe(received_));
    if (!is_whole && !is_other_version(received_)) return HandshakeGoesOn{};
    if (auto verdict = check_preface(answer); !std::holds_alternative<HandshakeGoesOn>(verdict)) return verdict;
    has_preface_ = true;
    received_.clear();
    if (!secret_) return HandshakeDone{std::string(bytes)};
  }
  if (!fill(received_, std::tuple_size_v<Proof>, bytes)) return HandshakeGoesOn{};
  if (!is_same(prove(*secret_, LinkRole::Coordinator, own_, others_), received_)) {
    return failed(HandshakeFailed::Kind::OtherSecret,
                  "the secrets of this node and of the coordinator at " + where_ + " differ (" + kSecretVariable + ")");
  }
  return HandshakeDone{std::string(bytes)};
}

HandshakeVerdict AgentHandshake::check_preface(std::string& answer) {
  using Kind = HandshakeFailed::Kind;
  if (is_other_version(received_)) {
    return failed(Kind::OtherVersion, "the coordinator at " + where_ +
                                          " is of another version of ddprun (its agent link is version " +
                                          std::to_string(version_in(received_)) + ", this node's version " +
                                          std::to_string(kLinkVersion) + "): install the same on every node");
  }
  // A connection to a free local port may get that very port and then talk to itself.
  others_ = nonce_in(received_);
  if (others_ == own_) return no_coordinator("it sends back what it is sent");
  const char mode = received_[kModeAt];
  if (mode != kWithoutSecret && mode != kWithSecret) return no_coordinator(describe(received_));
  if (job_ && job_in(received_) != *job_) return failed(Kind::OtherJob, "the coordinator of another job answers there");
  if (mode == kWithSecret && !secret_) {
    return failed(Kind::OtherSecret, "the coordinator at " + where_ + " wants a secret: give " + kSecretVariable);
  }
  if (mode == kWithoutSecret && secret_) {
    return failed(Kind::OtherSecret,
                  "the coordinator at " + where_ + " has no secret, this node has one (" + kSecretVariable + ")");
  }
  if (secret_) append(answer, prove(*secret_, LinkRole::Agent, own_, others_));
  return HandshakeGoesOn{};
}

HandshakeFailed AgentHandshake::ended() const {
  if (has_preface_) {
    return failed(HandshakeFailed::Kind::Stranger, "it closed the connection in the middle of the handshake");
  }
  if (received_.empty()) return no_coordinator("it closed the connection without a word");
  return no_coordinator("it closed the connection after " + describe(received_));
}

// ---- The coordinator's side ----

CoordinatorHandshake::CoordinatorHandshake(std::optional<Secret> secret, const JobTag& job, const Nonce& nonce)
    : secret_(std::move(secret)), job_(job), own_(nonce) {}

HandshakeVerdict CoordinatorHandshake::feed(std::string_view bytes, std::string& answer) {
  if (!has_preface_) {
    const bool is_whole = fill(received_, kLinkPrefaceBytes, bytes);
    if (!is_name_so_far(received_)) return no_agent(received_);
    if (!is_whole && !is_other_version(received_)) return HandshakeGoesOn{};
    if (auto verdict = check_preface(answer); !std::holds_alternative<HandshakeGoesOn>(verdict)) return verdict;
    has_preface_ = true;
    received_.clear();
    if (!secret_) return HandshakeDone{std::string(bytes)};
  }
  if (!fill(received_, std::tuple_size_v<Proof>, bytes)) return HandshakeGoesOn{};
  if (!is_same(prove(*secret_, LinkRole::Agent, others_, own_), received_)) {
    append(answer, Proof{});
    return failed(HandshakeFailed::Kind::OtherSecret, "its secret differs");
  }
  append(answer, prove(*secret_, LinkRole::Coordinator, others_, own_));
  return HandshakeDone{std::string(bytes)};
}

HandshakeVerdict CoordinatorHandshake::check_preface(std::string& answer) {
  using Kind = HandshakeFailed::Kind;
  answer += make_preface(secret_.has_value(), job_, own_);  // also if they do not match, so that the agent can say why
  if (is_other_version(received_)) {
    return failed(Kind::OtherVersion, "it is of another version of ddprun (its agent link is version " +
                                          std::to_string(version_in(received_)) + ", this coordinator's version " +
                                          std::to_string(kLinkVersion) + ")");
  }
  const char mode = received_[kModeAt];
  if (mode != kWithoutSecret && mode != kWithSecret) return no_agent(received_);
  const JobTag theirs = job_in(received_);
  if (theirs != JobTag{} && theirs != job_)
    return failed(Kind::OtherJob, "it looks for the coordinator of another job");
  if (mode == kWithSecret && !secret_) return failed(Kind::OtherSecret, "it has a secret, this job has none");
  if (mode == kWithoutSecret && secret_) return failed(Kind::OtherSecret, "it has no secret, this job wants one");
  others_ = nonce_in(received_);
  return HandshakeGoesOn{};
}

HandshakeFailed CoordinatorHandshake::ended() const {
  return failed(HandshakeFailed::Kind::Stranger, "it closed the connection in the middle of the handshake");
}

}  // namespace ddp::rendezvous
