// SPDX-License-Identifier: BSD-3-Clause
// One connection to the page of a job: reads one request, without its body, answers it and closes. It keeps 8 KiB for a
// request, whatever is sent; who sends a larger one, or takes more than five seconds for it, is answered or closed. All
// on io's thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/net/asio.hpp"

namespace ddp::launcher {

class HttpSession : public std::enable_shared_from_this<HttpSession> {
 public:
  struct Request {
    std::string method, target, host, authorization, accept;
    bool has_body = false;
  };
  struct Response {
    int status = 200;
    std::string content_type = "text/plain; charset=utf-8";
    std::string body;
  };
  using Reply = std::function<void(Response)>;
  struct Callbacks {
    std::function<void(const Request&, Reply)> on_request;  // at most once; the reply may come later
    std::function<void(HttpSession*)> on_over;              // last, and not within another call
  };

  // `connected` is a non-blocking TCP socket.
  HttpSession(rendezvous::asio::io_context& io, rendezvous::Descriptor connected, Callbacks callbacks);
  ~HttpSession();
  HttpSession(const HttpSession&) = delete;
  HttpSession& operator=(const HttpSession&) = delete;

  void start();
  // Closes the connection at once; on_over follows.
  void close();
  // Returns whether its request has not come yet.
  bool is_silent() const;

 private:
  struct Stream;
  void read();
  void take_request();
  void refuse(int status);
  void reply(Response response, bool is_head);
  void write();
  void linger();
  void end();

  Callbacks callbacks_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace ddp::launcher
