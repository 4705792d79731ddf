// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/membership/handshake.hpp"

#include <algorithm>
#include <utility>

#include "rendezvous/base/error.hpp"

namespace ddp::rendezvous {

namespace {

using Kind = Membership::Kind;

// The preface: name, version, mode, job, key.
constexpr std::string_view kName =
    "\xdd"
    "ddprun";
constexpr std::size_t kVersionAt = kName.size();
constexpr std::size_t kModeAt = kVersionAt + 1;
constexpr std::size_t kJobAt = kModeAt + 1;
constexpr std::size_t kKeyAt = kJobAt + std::tuple_size_v<JobTag>;
static_assert(kKeyAt + std::tuple_size_v<PublicKey> == kLinkPrefaceBytes);

constexpr std::size_t kCredentialLengthBytes = 2;  // before a credential
constexpr std::size_t kMaxCredentialBytes = 4096;
constexpr std::size_t kShownBytes = 16;  // quoted at most from what a stranger sent

std::string make_preface(Kind mode, const JobTag& job, const PublicKey& key) {
  std::string bytes(kName);
  bytes.push_back(static_cast<char>(kLinkVersion));
  bytes.push_back(static_cast<char>(mode));
  bytes.append(job.begin(), job.end());
  bytes.append(key.begin(), key.end());
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

// Returns nothing if this version knows no such mode.
std::optional<Kind> mode_in(std::string_view preface) {
  const auto mode = static_cast<Kind>(preface[kModeAt]);
  return mode <= Kind::Munge ? std::optional(mode) : std::nullopt;
}

PublicKey key_in(std::string_view preface) {
  PublicKey key;
  std::copy_n(preface.begin() + kKeyAt, key.size(), key.begin());
  return key;
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

std::string_view text_of(const Proof& proof) { return {reinterpret_cast<const char*>(proof.data()), proof.size()}; }

// Appends what proves to the other side that this one belongs to the job. Throws Error.
void append_proof(std::string& to, const Membership& membership, const Proof& proof) {
  if (membership.kind() == Kind::Secret) {
    to += text_of(proof);
    return;
  }
  const std::string credential = membership.voucher().vouch(text_of(proof));
  if (credential.empty() || credential.size() > kMaxCredentialBytes) {
    throw Error(ErrorCode::System, "a credential of " + std::to_string(credential.size()) + " bytes");
  }
  to.push_back(static_cast<char>(credential.size() >> 8));
  to.push_back(static_cast<char>(credential.size() & 0xff));
  to += credential;
}

std::size_t credential_length(std::string_view bytes) {
  return static_cast<std::size_t>(static_cast<unsigned char>(bytes[0])) << 8 | static_cast<unsigned char>(bytes[1]);
}

// Moves the other side's proof from the front of `from` to `to`. Returns whether it is there, or too long ever to be.
bool fill_proof(std::string& to, const Membership& membership, std::string_view& from) {
  if (membership.kind() == Kind::Secret) return fill(to, std::tuple_size_v<Proof>, from);
  if (to.size() < kCredentialLengthBytes && !fill(to, kCredentialLengthBytes, from)) return false;
  const std::size_t length = credential_length(to);
  return length > kMaxCredentialBytes || fill(to, kCredentialLengthBytes + length, from);
}

// Returns why this is not the proof; empty: it is.
std::string why_not(std::string_view received, const Membership& membership, const Proof& proof) {
  if (membership.kind() == Kind::Secret) return is_same(proof, received) ? "" : "its secret differs";
  if (received.size() != kCredentialLengthBytes + credential_length(received)) return "its credential is too long";
  const std::string credential(received.substr(kCredentialLengthBytes));
  return membership.voucher().why_not(credential, text_of(proof));
}

// Describes what a side has, to go on after "this node has": "MUNGE".
const char* described(Kind kind) {
  switch (kind) {
    case Kind::Open:
      return "no secret";
    case Kind::Secret:
      return "a secret file";
    case Kind::Munge:
      return "MUNGE";
  }
  return "";
}

HandshakeFailed failed(HandshakeFailed::Kind kind, std::string why) { return {kind, std::move(why)}; }

HandshakeFailed no_coordinator(const std::string& how) {
  return failed(HandshakeFailed::Kind::Stranger, "what answers there is not a ddprun coordinator (" + how + ")");
}

HandshakeFailed no_agent(std::string_view bytes) {
  return failed(HandshakeFailed::Kind::Stranger, "it is not a ddprun agent (" + describe(bytes) + ")");
}

}  // namespace

// ---- The agent's side ----

AgentHandshake::AgentHandshake(std::string where, Membership membership, std::optional<JobTag> job, const KeyPair& key)
    : where_(std::move(where)),
      membership_(std::move(membership)),
      job_(job),
      key_(key),
      preface_(make_preface(membership_.kind(), job_.value_or(JobTag{}), key_.public_key())) {}

HandshakeVerdict AgentHandshake::feed(std::string_view bytes, std::string& answer) {
  if (!keys_) {
    const bool is_whole = fill(received_, kLinkPrefaceBytes, bytes);
    if (!is_name_so_far(received_)) return no_coordinator(describe(received_));
    if (!is_whole && !is_other_version(received_)) return HandshakeGoesOn{};
    if (auto verdict = check_preface(answer); !std::holds_alternative<HandshakeGoesOn>(verdict)) return verdict;
    received_.clear();
  }
  if (membership_.kind() != Kind::Open) {
    if (!fill_proof(received_, membership_, bytes)) return HandshakeGoesOn{};
    if (auto verdict = check_proof(); !std::holds_alternative<HandshakeGoesOn>(verdict)) return verdict;
  }
  return HandshakeDone{std::string(bytes), *keys_};
}

HandshakeVerdict AgentHandshake::check_preface(std::string& answer) {
  using Failure = HandshakeFailed::Kind;
  if (is_other_version(received_)) {
    return failed(Failure::OtherVersion, "the coordinator at " + where_ +
                                             " is of another version of ddprun (its agent link is version " +
                                             std::to_string(version_in(received_)) + ", this node's version " +
                                             std::to_string(kLinkVersion) + "): install the same on every node");
  }
  // A connection to a free local port may get that very port and then talk to itself.
  const PublicKey theirs = key_in(received_);
  if (theirs == key_.public_key()) return no_coordinator("it sends back what it is sent");
  const auto mode = mode_in(received_);
  if (!mode) return no_coordinator(describe(received_));
  if (job_ && job_in(received_) != *job_) {
    return failed(Failure::OtherJob, "the coordinator of another job answers there");
  }
  if (*mode != membership_.kind()) return failed(Failure::OtherSecret, why_unlike(*mode));
  keys_ = agree(key_, theirs, membership_.secret(), preface_ + received_);
  if (!keys_) return no_coordinator("its key is none");
  if (*mode == Kind::Open) return HandshakeGoesOn{};
  try {
    append_proof(answer, membership_, keys_->of_agent);
  } catch (const Error& error) {
    return failed(Failure::Stranger, std::string("this node cannot prove who it is: ") + error.what());
  }
  return HandshakeGoesOn{};
}

std::string AgentHandshake::why_unlike(Kind theirs) const {
  const Kind ours = membership_.kind();
  if (ours == Kind::Open && theirs == Kind::Secret) {
    return "the coordinator at " + where_ + " wants a secret: give --secret FILE or DDPRUN_SECRET_FILE";
  }
  if (ours == Kind::Secret && theirs == Kind::Open) {
    return "the coordinator at " + where_ + " has no secret, this node has one (" + membership_.source() + ")";
  }
  return std::string("this node has ") + described(ours) +
         (ours == Kind::Secret ? " (" + membership_.source() + ")" : "") + ", the coordinator at " + where_ + " has " +
         described(theirs) + ": give all nodes the same --secret";
}

HandshakeVerdict AgentHandshake::check_proof() const {
  const std::string why = why_not(received_, membership_, keys_->of_coordinator);
  if (why.empty()) return HandshakeGoesOn{};
  const std::string coordinator = "the coordinator at " + where_;
  if (membership_.kind() == Kind::Secret) {
    return failed(HandshakeFailed::Kind::OtherSecret,
                  "the secrets of this node and of " + coordinator + " differ (" + membership_.source() + ")");
  }
  if (credential_length(received_) == 0) {
    return failed(HandshakeFailed::Kind::OtherSecret,
                  coordinator +
                      " does not accept this node's credential of MUNGE: are both nodes of one cluster, run by the "
                      "same user, and do their clocks agree?");
  }
  return failed(HandshakeFailed::Kind::OtherSecret, "this node does not accept " + coordinator + ": " + why);
}

HandshakeFailed AgentHandshake::ended() const {
  if (keys_) {
    return failed(HandshakeFailed::Kind::Stranger, "it closed the connection in the middle of the handshake");
  }
  if (received_.empty()) return no_coordinator("it closed the connection without a word");
  return no_coordinator("it closed the connection after " + describe(received_));
}

// ---- The coordinator's side ----

CoordinatorHandshake::CoordinatorHandshake(Membership membership, const JobTag& job, const KeyPair& key)
    : membership_(std::move(membership)),
      job_(job),
      key_(key),
      preface_(make_preface(membership_.kind(), job_, key_.public_key())) {}

HandshakeVerdict CoordinatorHandshake::feed(std::string_view bytes, std::string& answer) {
  if (!keys_) {
    const bool is_whole = fill(received_, kLinkPrefaceBytes, bytes);
    if (!is_name_so_far(received_)) return no_agent(received_);
    if (!is_whole && !is_other_version(received_)) return HandshakeGoesOn{};
    if (auto verdict = check_preface(answer); !std::holds_alternative<HandshakeGoesOn>(verdict)) return verdict;
    received_.clear();
  }
  if (membership_.kind() != Kind::Open) {
    if (!fill_proof(received_, membership_, bytes)) return HandshakeGoesOn{};
    if (auto verdict = check_proof(answer); !std::holds_alternative<HandshakeGoesOn>(verdict)) return verdict;
  }
  return HandshakeDone{std::string(bytes), *keys_};
}

HandshakeVerdict CoordinatorHandshake::check_preface(std::string& answer) {
  using Failure = HandshakeFailed::Kind;
  answer += preface_;  // also if they do not match, so that the agent can say why
  if (is_other_version(received_)) {
    return failed(Failure::OtherVersion, "it is of another version of ddprun (its agent link is version " +
                                             std::to_string(version_in(received_)) + ", this coordinator's version " +
                                             std::to_string(kLinkVersion) + ")");
  }
  const auto mode = mode_in(received_);
  if (!mode) return no_agent(received_);
  const JobTag theirs = job_in(received_);
  if (theirs != JobTag{} && theirs != job_) {
    return failed(Failure::OtherJob, "it looks for the coordinator of another job");
  }
  const Kind ours = membership_.kind();
  if (*mode == Kind::Secret && ours == Kind::Open) {
    return failed(Failure::OtherSecret, "it has a secret, this job has none");
  }
  if (*mode == Kind::Open && ours == Kind::Secret) {
    return failed(Failure::OtherSecret, "it has no secret, this job wants one");
  }
  if (*mode != ours) {
    return failed(Failure::OtherSecret, std::string("it has ") + described(*mode) + ", this job " + described(ours));
  }
  keys_ = agree(key_, key_in(received_), membership_.secret(), received_ + preface_);
  if (!keys_) return failed(Failure::Stranger, "it is not a ddprun agent (its key is none)");
  return HandshakeGoesOn{};
}

HandshakeVerdict CoordinatorHandshake::check_proof(std::string& answer) const {
  std::string why = why_not(received_, membership_, keys_->of_agent);
  const std::size_t said = answer.size();
  try {
    if (why.empty()) append_proof(answer, membership_, keys_->of_coordinator);
  } catch (const Error& error) {
    why = std::string("this node cannot prove who it is: ") + error.what();
  }
  if (why.empty()) return HandshakeGoesOn{};
  answer.resize(said);
  answer.append(membership_.kind() == Kind::Secret ? std::tuple_size_v<Proof> : kCredentialLengthBytes, '\0');
  return failed(HandshakeFailed::Kind::OtherSecret, why);
}

HandshakeFailed CoordinatorHandshake::ended() const {
  return failed(HandshakeFailed::Kind::Stranger, "it closed the connection in the middle of the handshake");
}

}  // namespace ddp::rendezvous
