// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/text/lines.hpp"

#include <catch2/catch.hpp>

using namespace ddp::launcher;
using namespace std::string_literals;

namespace {

// Returns what a LineHolder writes after each piece of the input, and at the end.
std::vector<std::string> held_back(const std::vector<std::string>& pieces, std::size_t max_held = 100) {
  LineHolder holder(max_held);
  std::vector<std::string> out;
  for (const std::string& piece : pieces) {
    holder.take(piece, [&](std::string_view text) { out.emplace_back(text); });
  }
  holder.finish([&](std::string_view text) { out.emplace_back(text); });
  return out;
}

std::string marked(std::string_view text) {
  std::string out;
  for_each_line(text,
                [&](std::string_view line, bool ended) { out.append("<").append(line).append(ended ? ">" : "..."); });
  return out;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("lines: a line is held until its end arrives", "[launcher][unit]") {
  CHECK(held_back({"one\ntwo\nth", "re", "e\n"}) == Texts{"one\ntwo\n", "three\n"});
  CHECK(held_back({"no end"}) == Texts{"no end"});
  CHECK(held_back({"nul\0\xff\n"s}) == Texts{"nul\0\xff\n"s});
}

TEST_CASE("lines: a carriage return that may be half of an end waits for the next byte", "[launcher][unit]") {
  CHECK(held_back({"a\r", "\nb\n"}) == Texts{"a\r\nb\n"});
  CHECK(held_back({"10%\r", "20%\r", "30%"}) == Texts{"10%\r", "20%\r", "30%"});
  CHECK(held_back({"10%\r20%\r"}) == Texts{"10%\r", "20%\r"});
}

TEST_CASE("lines: a line that is too long to be held comes in pieces", "[launcher][unit]") {
  CHECK(held_back({"12345", "67890", "ab", "c\nd\n"}, 9) == Texts{"1234567890", "abc\nd\n"});
}

TEST_CASE("lines: counted with and without one that has no end", "[launcher][unit]") {
  CHECK(count_newlines("a\n\nb") == 2);
  CHECK(count_lines("a\n\nb") == 3);
  CHECK(count_lines("a\n") == 1);
  CHECK(count_lines("") == 0);
  CHECK((lines_in_words(1) == "1 line" && lines_in_words(0) == "0 lines"));
}

TEST_CASE("lines: \\n, \\r and \\r\\n each end a line", "[launcher][unit]") {
  CHECK(marked("one\ntwo\r\nthree\rfour") == "<one><two><three><four...");
  CHECK(marked("\n\r\n\r") == "<><><>");
  CHECK(marked("").empty());
}

TEST_CASE("lines: only the last state of a progress bar counts, so that it hides nothing", "[launcher][unit]") {
  CHECK(last_lines("error\n10%\r20%\r30%\r\nend\n", 5, 10) == Texts{"error", "30%", "end"});
  std::string text = "error\n10%\r20%\r\n1%\r2%\r";
  forget_overwritten(text);
  CHECK(text == "error\n20%\n2%\r");
  for (int i = 0; i < 3; ++i) {
    text += "3%\r";
    forget_overwritten(text);
  }
  CHECK(text == "error\n20%\n3%\r");
}

TEST_CASE("lines: the last ones of a text, without the empty ones", "[launcher][unit]") {
  CHECK(last_lines("a\nb\n\nc\n", 2, 10) == Texts{"b", "c"});
  CHECK(last_lines("windows\r\n", 2, 10) == Texts{"windows"});
  CHECK(last_lines("too long\x1b[31m\n", 2, 4) == Texts{"too  [...]"});
  CHECK(last_lines("", 5, 10).empty());
  CHECK(last_lines("\n\n", 5, 10).empty());
}
