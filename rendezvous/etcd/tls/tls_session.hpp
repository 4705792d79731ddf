// SPDX-License-Identifier: BSD-3-Clause
// TLS 1.2 or later on one connection, between bytes in memory: the caller moves them from and to the socket. The
// server's certificate and name are always verified.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "rendezvous/etcd/tls/tls_library.hpp"

namespace ddp::rendezvous {

struct TlsFiles {
  std::string authorities;  // PEM; empty: the system's
  std::string certificate;  // PEM, the client's own with its chain; empty: it has none
  std::string key;          // PEM; empty: it is in the certificate's file
};

// What all connections of a client have in common. Throws Error with the file and the reason if one cannot be used.
class TlsContext {
 public:
  explicit TlsContext(const TlsFiles& files);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

 private:
  friend class TlsSession;
  const TlsApi& api_;
  TlsConfiguration* configuration_;
};

class TlsSession {
 public:
  // `host` is the name or numeric address that the certificate must be for. The context must outlive the session.
  // Throws Error{System} if there is no memory left.
  TlsSession(const TlsContext& context, const std::string& host);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // Takes what came from the server, nothing at first, and appends what it says to `plain`. Returns false if the
  // session is over: why_over() says why; empty: the server closed it in order.
  bool receive(std::string_view bytes, std::string& plain);
  // Encrypts; call it once is_ready().
  bool send(std::string_view plain);
  bool is_ready() const { return is_ready_; }
  const std::string& why_over() const { return why_over_; }
  // Takes what is to be sent to the server.
  std::string take_outgoing();

 private:
  bool shake();
  bool over(int returned, const char* what);

  const TlsApi& api_;
  TlsConnection* connection_;
  TlsBytes* incoming_;  // connection_ owns both
  TlsBytes* outgoing_;
  bool is_ready_ = false;
  std::string why_over_;
};

}  // namespace ddp::rendezvous
