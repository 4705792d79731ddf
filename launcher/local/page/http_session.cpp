// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/local/page/http_session.hpp"

#include <sys/socket.h>

#include <array>
#include <boost/beast/core/flat_static_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <optional>
#include <utility>

namespace ddp::launcher {

namespace asio = rendezvous::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

namespace {

constexpr std::size_t kMostHeaderBytes = 8192;
constexpr std::chrono::seconds kRequestWithin{5}, kAnswerWithin{10};
// For what was sent after a request, so that its sender reads the answer.
constexpr std::chrono::seconds kLingerFor{1};
constexpr std::size_t kLingerBytes = 256 << 10;

// Nothing of the page comes from elsewhere, goes elsewhere, or is shown within another page.
constexpr char kContentPolicy[] =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

asio::ip::tcp::socket socket_of(asio::io_context& io, rendezvous::Descriptor connected) {
  asio::ip::tcp::socket socket(io);
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  ::getsockname(connected.get(), reinterpret_cast<sockaddr*>(&address), &size);
  boost::system::error_code error;
  socket.assign(address.ss_family == AF_INET6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4(), connected.get(), error);
  if (!error) connected.release();
  return socket;
}

// Returns the answer to what is no request; 0: none, since nobody waits for it.
int status_for(const beast::error_code& error) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow) return 431;
  const bool has_left = error == http::error::end_of_stream || error == http::error::partial_message;
  const bool is_nonsense = error.category() == http::make_error_code(http::error::bad_method).category();
  return is_nonsense && !has_left ? 400 : 0;
}

std::string text_of(beast::string_view text) { return {text.data(), text.size()}; }

}  // namespace

struct HttpSession::Stream {
  explicit Stream(asio::ip::tcp::socket socket) : tcp(std::move(socket)) {}

  beast::tcp_stream tcp;
  beast::flat_static_buffer<kMostHeaderBytes> buffer;
  http::request_parser<http::empty_body> parser;
  http::response<http::string_body> response;
  // Writes the response, without its body where only the header was asked for.
  std::optional<http::response_serializer<http::string_body>> serializer;
  std::array<char, 4096> rest;  // what the visitor sends after its request
  std::size_t dropped = 0;
  bool has_request = false;
  bool is_over = false;
};

HttpSession::HttpSession(asio::io_context& io, rendezvous::Descriptor connected, Callbacks callbacks)
    : callbacks_(std::move(callbacks)), stream_(std::make_unique<Stream>(socket_of(io, std::move(connected)))) {}

HttpSession::~HttpSession() = default;

bool HttpSession::is_silent() const { return !stream_->has_request; }

void HttpSession::start() {
  asio::post(stream_->tcp.get_executor(), [self = shared_from_this()] { self->read(); });
}

void HttpSession::read() {
  if (stream_->is_over) return;
  if (!stream_->tcp.socket().is_open()) return end();
  stream_->parser.header_limit(kMostHeaderBytes);
  stream_->parser.body_limit(boost::none);  // no body is read: page_access refuses it
  stream_->tcp.expires_after(kRequestWithin);
  http::async_read_header(stream_->tcp, stream_->buffer, stream_->parser,
                          [self = shared_from_this()](beast::error_code error, std::size_t) {
                            if (self->stream_->is_over) return;
                            if (error) return self->refuse(status_for(error));
                            self->take_request();
                          });
}

void HttpSession::refuse(int status) {
  stream_->has_request = true;
  if (status == 0) return end();
  reply({.status = status, .body = status == 431 ? "a request has at most 8192 bytes\n" : "this is no HTTP request\n"},
        false);
}

void HttpSession::take_request() {
  stream_->has_request = true;
  const auto& message = stream_->parser.get();
  if (message.count(http::field::host) > 1) return refuse(400);
  const auto length = stream_->parser.content_length();
  Request request{.method = text_of(message.method_string()),
                  .target = text_of(message.target()),
                  .host = text_of(message[http::field::host]),
                  .authorization = text_of(message[http::field::authorization]),
                  .accept = text_of(message[http::field::accept]),
                  .has_body = stream_->parser.chunked() || (length && *length > 0)};
  stream_->tcp.expires_never();  // the reply has a deadline of its own
  const bool is_head = request.method == "HEAD";
  callbacks_.on_request(request, [weak = weak_from_this(), is_head](Response response) {
    if (const auto self = weak.lock()) self->reply(std::move(response), is_head);
  });
}

void HttpSession::reply(Response response, bool is_head) {
  if (stream_->is_over) return;
  auto& message = stream_->response;
  message.version(11);
  message.result(static_cast<unsigned>(response.status));
  message.set(http::field::content_type, response.content_type);
  message.set(http::field::cache_control, "no-store");
  message.set(http::field::connection, "close");
  message.set("Content-Security-Policy", kContentPolicy);
  message.set("Cross-Origin-Resource-Policy", "same-origin");
  message.set("Referrer-Policy", "no-referrer");
  message.set("X-Content-Type-Options", "nosniff");
  message.set("X-Frame-Options", "DENY");
  if (response.status == 401) message.set(http::field::www_authenticate, "Basic realm=\"ddprun\", charset=\"UTF-8\"");
  if (response.status == 405) message.set(http::field::allow, "GET, HEAD");
  message.body() = std::move(response.body);
  message.prepare_payload();
  stream_->serializer.emplace(message);
  stream_->serializer->split(is_head);
  write();
}

void HttpSession::write() {
  stream_->tcp.expires_after(kAnswerWithin);
  const auto written = [self = shared_from_this()](beast::error_code error, std::size_t) {
    if (self->stream_->is_over) return;
    if (error) return self->end();
    beast::error_code ignored;
    self->stream_->tcp.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
    self->stream_->tcp.expires_after(kLingerFor);
    self->linger();
  };
  if (stream_->serializer->split()) {
    http::async_write_header(stream_->tcp, *stream_->serializer, written);
  } else {
    http::async_write(stream_->tcp, *stream_->serializer, written);
  }
}

// Drops what still comes, for a moment: a connection that is closed with bytes unread is reset, and the visitor might
// not read the answer.
void HttpSession::linger() {
  stream_->tcp.async_read_some(asio::buffer(stream_->rest),
                               [self = shared_from_this()](beast::error_code error, std::size_t size) {
                                 self->stream_->dropped += size;
                                 const bool is_enough = self->stream_->dropped > kLingerBytes;
                                 if (error || is_enough || self->stream_->is_over) return self->end();
                                 self->linger();
                               });
}

void HttpSession::close() {
  stream_->tcp.close();
  asio::post(stream_->tcp.get_executor(), [self = shared_from_this()] { self->end(); });
}

void HttpSession::end() {
  if (std::exchange(stream_->is_over, true)) return;
  stream_->tcp.close();
  if (callbacks_.on_over) callbacks_.on_over(this);
}

}  // namespace ddp::launcher
