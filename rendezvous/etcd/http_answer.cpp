// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/etcd/http_answer.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "rendezvous/base/text.hpp"
#include "rendezvous/etcd/messages.hpp"

namespace ddp::rendezvous {

namespace {

namespace http = boost::beast::http;

constexpr std::size_t kMostHeaderBytes = 16 << 10;
constexpr std::size_t kMostPending = 32 << 10;  // a header, or the line before a chunk

}  // namespace

struct HttpAnswer::Parser {
  http::response_parser<http::string_body> http;
};

HttpAnswer::HttpAnswer(Shape shape) : shape_(shape), parser_(std::make_unique<Parser>()) {
  parser_->http.header_limit(kMostHeaderBytes);
  if (shape == Shape::Whole) {
    parser_->http.body_limit(kMostAnswerBytes);
  } else {
    parser_->http.body_limit(boost::none);  // a line has a limit, and a stream has not
  }
}

HttpAnswer::~HttpAnswer() = default;

HttpAnswer::State HttpAnswer::bad(const std::string& why) {
  why_ = why;
  return state_ = State::Bad;
}

HttpAnswer::State HttpAnswer::feed(std::string_view bytes) {
  if (state_ != State::Reading) return state_;
  pending_ += bytes;
  parse();
  return state_;
}

HttpAnswer::State HttpAnswer::end() {
  boost::system::error_code error;
  if (state_ == State::Reading && parser_->http.is_header_done() && parser_->http.need_eof()) {
    parser_->http.put_eof(error);
    if (!error && parser_->http.is_done()) state_ = State::Done;
  }
  return state_ == State::Reading ? bad("it closed the connection") : state_;
}

// Each step parses the header, the line before a chunk, or what is there of a body.
void HttpAnswer::parse() {
  auto& http = parser_->http;
  while (state_ == State::Reading && !pending_.empty()) {
    const bool had_header = http.is_header_done();
    boost::system::error_code error;
    const std::size_t used = http.put(boost::asio::buffer(pending_), error);
    pending_.erase(0, used);
    if (error == http::error::need_more) {
      if (pending_.size() > kMostPending) bad("its answer has a line without an end");
      return;
    }
    if (error == http::error::body_limit || error == http::error::buffer_overflow) {
      bad("its answer has more than " + describe_bytes(kMostAnswerBytes));
    } else if (error == http::error::header_limit) {
      bad("the header of its answer has more than " + describe_bytes(kMostHeaderBytes));
    } else if (error) {
      bad("its answer is not HTTP (" + error.message() + ")");
    } else if (!had_header && http.is_header_done() && http.content_length().value_or(0) > kMostAnswerBytes) {
      bad("its answer has more than " + describe_bytes(kMostAnswerBytes));
    } else if (http.get().body().size() > kMostAnswerBytes) {
      bad("its answer has a line of more than " + describe_bytes(kMostAnswerBytes));
    } else if (http.is_done()) {
      state_ = State::Done;
    }
    if (used == 0 && state_ == State::Reading && http.is_header_done() == had_header) return;
  }
}

unsigned HttpAnswer::status() const { return parser_->http.is_header_done() ? parser_->http.get().result_int() : 0; }
bool HttpAnswer::keeps_connection() const { return parser_->http.keep_alive(); }
const std::string& HttpAnswer::body() const { return parser_->http.get().body(); }
bool HttpAnswer::has_rest() const { return state_ == State::Done && !pending_.empty(); }

bool HttpAnswer::take_line(std::string& line) {
  if (shape_ != Shape::Lines || status() != 200 || state_ == State::Bad) return false;
  std::string& body = parser_->http.get().body();
  const std::size_t end = body.find('\n');
  if (end == std::string::npos) return false;
  line.assign(body, 0, end);
  body.erase(0, end + 1);
  return true;
}

}  // namespace ddp::rendezvous
