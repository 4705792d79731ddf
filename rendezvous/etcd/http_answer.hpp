// SPDX-License-Identifier: BSD-3-Clause
// Reads the answer to one request of HTTP/1.1 from the bytes of a connection, however they are cut. A server that sends
// more than an answer of etcd has is refused while it sends: at most kMostAnswerBytes and some KiB are kept.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace ddp::rendezvous {

class HttpAnswer {
 public:
  // Whole: an answer of limited length. Lines: a stream of lines without an end, if its status is 200.
  enum class Shape { Whole, Lines };
  enum class State { Reading, Done, Bad };

  explicit HttpAnswer(Shape shape);
  ~HttpAnswer();
  HttpAnswer(const HttpAnswer&) = delete;
  HttpAnswer& operator=(const HttpAnswer&) = delete;

  // Takes the next bytes. Once it is Done or Bad, it takes no more.
  State feed(std::string_view bytes);
  // Takes the end of the connection, which is the end of an answer that does not say how long it is.
  State end();
  State state() const { return state_; }
  const std::string& why_bad() const { return why_; }

  unsigned status() const;  // 0 until the header is there
  bool keeps_connection() const;
  const std::string& body() const;
  // Takes the next whole line, without its end. Returns false if there is none. Call it after each feed().
  bool take_line(std::string& line);
  bool has_rest() const;  // bytes after the end of the answer, which nobody asked for

 private:
  struct Parser;
  State bad(const std::string& why);
  void parse();

  const Shape shape_;
  State state_ = State::Reading;
  std::string why_;
  std::string pending_;  // not parsed yet
  std::unique_ptr<Parser> parser_;
};

}  // namespace ddp::rendezvous
