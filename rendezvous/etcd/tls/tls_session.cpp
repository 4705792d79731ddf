// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/etcd/tls/tls_session.hpp"

#include <array>

#include "rendezvous/base/error.hpp"
#include "rendezvous/net/addresses/numeric_address.hpp"

namespace ddp::rendezvous {

namespace {

// Without it OpenSSL would ask for the key's password on the terminal.
int no_password(char*, int, int, void*) { return 0; }

std::string newest_error(const TlsApi& api) {
  std::array<char, 256> text = {};
  const unsigned long error = api.next_error();
  if (error == 0) return "no reason given";
  api.error_text(error, text.data(), text.size());
  api.clear_errors();
  return text.data();
}

// Returns why a server's certificate is refused, and which option may help.
std::string why_refused(const TlsApi& api, long verified) {
  const bool has_unknown_signer = verified >= kTlsSelfSigned && verified <= kTlsUnknownAuthority;
  return std::string("its certificate is refused: ") + api.verify_text(verified) +
         (has_unknown_signer ? " (cacert names the file of who signed it)" : "");
}

// Returns why the server ended the session, and which options may help.
std::string why_broken(const TlsApi& api, const char* what) {
  const std::string error = newest_error(api);
  const bool wants_certificate = error.find("alert bad certificate") != std::string::npos ||
                                 error.find("alert certificate required") != std::string::npos;
  return what + (": " + error) + (wants_certificate ? " (it wants one of this node: cert and key name the files)" : "");
}

[[noreturn]] void refuse(const TlsApi& api, const std::string& what) {
  throw Error(ErrorCode::InvalidArgument, what + ": " + newest_error(api));
}

void use_files(const TlsApi& api, TlsConfiguration* to, const TlsFiles& files) {
  if (files.authorities.empty()) {
    if (api.use_systems_authorities(to) != 1) refuse(api, "the system's certificates of authorities cannot be used");
  } else if (api.load_authorities(to, files.authorities.c_str(), nullptr) != 1) {
    refuse(api, "the certificates of authorities in " + files.authorities + " cannot be used");
  }
  if (files.certificate.empty()) return;
  if (api.use_certificate_chain(to, files.certificate.c_str()) != 1) {
    refuse(api, "the client's certificate in " + files.certificate + " cannot be used");
  }
  const std::string& key = files.key.empty() ? files.certificate : files.key;
  if (api.use_private_key(to, key.c_str(), kTlsPemFile) != 1 || api.check_private_key(to) != 1) {
    refuse(api, "the client's key in " + key + " cannot be used (a key with a password cannot)");
  }
}

}  // namespace

TlsContext::TlsContext(const TlsFiles& files)
    : api_(tls_api()), configuration_(api_.new_configuration(api_.client_method())) {
  if (configuration_ == nullptr) refuse(api_, "OpenSSL cannot be used");
  try {
    api_.control_configuration(configuration_, kTlsSetLeastVersion, kTlsVersion12, nullptr);
    api_.set_verify(configuration_, kTlsVerifyPeer, nullptr);
    api_.set_password_callback(configuration_, no_password);
    use_files(api_, configuration_, files);
  } catch (...) {
    api_.free_configuration(configuration_);
    throw;
  }
}

TlsContext::~TlsContext() { api_.free_configuration(configuration_); }

TlsSession::TlsSession(const TlsContext& context, const std::string& host)
    : api_(context.api_),
      connection_(api_.new_connection(context.configuration_)),
      incoming_(api_.new_bytes(api_.memory_bytes())),
      outgoing_(api_.new_bytes(api_.memory_bytes())) {
  if (connection_ == nullptr || incoming_ == nullptr || outgoing_ == nullptr)
    refuse(api_, "OpenSSL has no memory left");
  api_.set_bytes(connection_, incoming_, outgoing_);
  api_.be_client(connection_);
  const std::string address = numeric_address(host);
  bool is_expected = false;
  if (address.empty()) {
    api_.set_name_flags(connection_, kTlsNoPartialWildcards);
    is_expected = api_.set_expected_name(connection_, host.c_str()) == 1;
    std::string name = host;  // OpenSSL copies it, and takes no const
    api_.control_connection(connection_, kTlsSetServerName, 0, name.data());
  } else {
    is_expected = api_.set_expected_address(api_.parameters(connection_), address.c_str()) == 1;
  }
  if (is_expected) return;
  api_.free_connection(connection_);
  refuse(api_, "no certificate can be for " + host);
}

TlsSession::~TlsSession() { api_.free_connection(connection_); }

bool TlsSession::over(int returned, const char* what) {
  const int error = api_.error_of(connection_, returned);
  if (error == kTlsWantsRead || error == kTlsWantsWrite) return false;
  if (error == kTlsClosedInOrder) return true;
  const long verified = is_ready_ ? kTlsVerified : api_.verify_result(connection_);
  why_over_ = verified != kTlsVerified ? why_refused(api_, verified) : why_broken(api_, what);
  api_.clear_errors();
  return true;
}

bool TlsSession::shake() {
  const int returned = api_.do_handshake(connection_);
  is_ready_ = returned == 1;
  return is_ready_ || !over(returned, "no TLS");
}

bool TlsSession::receive(std::string_view bytes, std::string& plain) {
  api_.clear_errors();
  if (!bytes.empty() && api_.write_bytes(incoming_, bytes.data(), static_cast<int>(bytes.size())) <= 0) {
    why_over_ = "OpenSSL has no memory left";
    return false;
  }
  if (!is_ready_ && !shake()) return false;
  if (!is_ready_) return true;
  std::array<char, 16384> part;  // as much as a record of TLS has
  while (true) {
    const int size = api_.read(connection_, part.data(), static_cast<int>(part.size()));
    if (size <= 0) return !over(size, "TLS broke");
    plain.append(part.data(), static_cast<std::size_t>(size));
  }
}

bool TlsSession::send(std::string_view plain) {
  api_.clear_errors();
  const int size = api_.write(connection_, plain.data(), static_cast<int>(plain.size()));
  if (size > 0) return true;
  over(size, "TLS broke");
  return false;
}

std::string TlsSession::take_outgoing() {
  std::string bytes;
  std::array<char, 16384> part;
  for (int size = 0; (size = api_.read_bytes(outgoing_, part.data(), static_cast<int>(part.size()))) > 0;) {
    bytes.append(part.data(), static_cast<std::size_t>(size));
  }
  return bytes;
}

}  // namespace ddp::rendezvous
