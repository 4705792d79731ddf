// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/etcd/http_answer.hpp"

#include <catch2/catch.hpp>
#include <string>

#include "rendezvous/etcd/messages.hpp"

using Catch::Matchers::Contains;

namespace ddp::rendezvous {
namespace {

using Shape = HttpAnswer::Shape;
using State = HttpAnswer::State;

const std::string kChunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

TEST_CASE("http answer: it is read alike however its bytes are cut", "[rendezvous][unit]") {
  const std::string bytes =
      "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\nTrailer: Grpc-Trailer-Content-Type\r\n\r\n"
      "5\r\nhello\r\n0\r\nGrpc-Trailer-Content-Type: application/grpc\r\n\r\n";
  for (std::size_t cut = 1; cut <= bytes.size(); ++cut) {
    HttpAnswer answer(Shape::Whole);
    for (std::size_t at = 0; at < bytes.size(); at += cut) answer.feed(std::string_view(bytes).substr(at, cut));
    CHECK(answer.state() == State::Done);
    CHECK(answer.status() == 404);
    CHECK(answer.body() == "hello");
    CHECK(answer.keeps_connection());
    CHECK_FALSE(answer.has_rest());
  }
}

TEST_CASE("http answer: a stream gives each line once it is whole", "[rendezvous][unit]") {
  HttpAnswer answer(Shape::Lines);
  std::string line;
  CHECK(answer.feed(kChunked + "6\r\none\ntw\r\n") == State::Reading);
  CHECK(answer.take_line(line));
  CHECK(line == "one");
  CHECK_FALSE(answer.take_line(line));
  CHECK(answer.feed("3\r\no\n\n\r\n") == State::Reading);
  CHECK(answer.take_line(line));
  CHECK(line == "two");
  CHECK(answer.take_line(line));
  CHECK(line.empty());
  CHECK(answer.feed("0\r\n\r\n") == State::Done);
}

TEST_CASE("http answer: more than etcd ever answers is refused while it comes", "[rendezvous][unit]") {
  const std::string much(1 << 16, 'a');
  const auto feed_for_ever = [&](HttpAnswer& answer, const std::string& part) {
    std::size_t fed = 0;
    while (answer.feed(part) == State::Reading && fed < 2 * kMostAnswerBytes) fed += part.size();
    return fed;
  };
  HttpAnswer told(Shape::Whole);
  CHECK(told.feed("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n") == State::Bad);
  CHECK_THAT(told.why_bad(), Contains("its answer has more than 2.1 MB"));
  HttpAnswer untold(Shape::Whole);
  untold.feed("HTTP/1.1 200 OK\r\n\r\n");
  CHECK(feed_for_ever(untold, much) <= kMostAnswerBytes);
  HttpAnswer line(Shape::Lines);
  line.feed(kChunked);
  CHECK(feed_for_ever(line, "10000\r\n" + much + "\r\n") <= kMostAnswerBytes + 2 * much.size());
  CHECK_THAT(line.why_bad(), Contains("a line of more than"));
  HttpAnswer header(Shape::Whole);
  CHECK(feed_for_ever(header, "HTTP/1.1 200 OK\r\nX: " + much) < 4 * much.size());
  HttpAnswer size(Shape::Whole);
  size.feed(kChunked);
  CHECK(feed_for_ever(size, "1;" + much) < 4 * much.size());
  HttpAnswer other(Shape::Whole);
  CHECK(other.feed("SSH-2.0-OpenSSH_9.2\r\n") == State::Bad);
  CHECK_THAT(other.why_bad(), Contains("not HTTP"));
}

TEST_CASE("http answer: the end of the connection ends only an answer that does not say its length",
          "[rendezvous][unit]") {
  HttpAnswer open(Shape::Whole);
  open.feed("HTTP/1.0 400 Bad Request\r\n\r\nno");
  CHECK(open.end() == State::Done);
  CHECK(open.body() == "no");
  HttpAnswer cut(Shape::Whole);
  cut.feed("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nno");
  CHECK(cut.end() == State::Bad);
  HttpAnswer nothing(Shape::Whole);
  CHECK(nothing.end() == State::Bad);
}

}  // namespace
}  // namespace ddp::rendezvous
