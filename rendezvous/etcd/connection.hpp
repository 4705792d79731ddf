// SPDX-License-Identifier: BSD-3-Clause
// One connection to one address of an etcd member, with TLS or without. It asks one thing at a time. Everything happens
// on the thread that runs the io_context; no method calls a callback.
//
//     opening ──▶ idle ◀──▶ asking          it has no deadlines: its owner closes it
//        └──────────┴─────────┴──▶ over
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/etcd/http_answer.hpp"
#include "rendezvous/etcd/tls/tls_session.hpp"
#include "rendezvous/net/addresses/name_lookup.hpp"
#include "rendezvous/net/asio.hpp"

namespace ddp::rendezvous {

class EtcdConnection : public std::enable_shared_from_this<EtcdConnection> {
 public:
  struct Callbacks {
    std::function<void(unsigned status, const std::string& body)> on_answer;
    std::function<void(const std::string& line)> on_line;  // when the answer is a stream
    // The connection is over while it was asked something: `was_sent` says whether the server may have got it.
    std::function<void(const std::string& why, bool was_sent)> on_failed;
  };

  // Without a context the connection is plain. `host` is who the certificate must be for.
  EtcdConnection(asio::io_context& io, const TlsContext* tls, std::string host, Callbacks callbacks);

  void open(const FoundAddress& address);
  // Sends the request once the connection is open. Call it only while nothing is asked.
  void ask(std::string request, HttpAnswer::Shape shape);
  // Returns whether it can be asked something more.
  bool is_usable() const { return !is_over_ && !answer_; }
  bool was_sent() const { return was_sent_; }
  void close();  // no callback follows

 private:
  void connect(const FoundAddress& address, boost::system::error_code& error);
  void opened();
  void send_request();
  void send(std::string_view bytes);
  void write();
  void read();
  void take(std::string_view bytes);
  void take_plain(std::string_view plain);
  void finish();
  void ended(const std::string& why);
  void fail(const std::string& why);

  asio::io_context& io_;
  const TlsContext* const tls_context_;
  const std::string host_;
  Callbacks callbacks_;
  asio::generic::stream_protocol::socket socket_;
  std::unique_ptr<TlsSession> tls_;
  std::array<char, 16384> buffer_;
  std::string writing_, to_write_;
  std::string request_;                 // not sent yet
  std::unique_ptr<HttpAnswer> answer_;  // to what is asked
  bool is_open_ = false;
  bool has_heard_ = false;  // it has said something, but for the beginning of TLS
  bool was_sent_ = false;
  bool is_over_ = false;
};

}  // namespace ddp::rendezvous
