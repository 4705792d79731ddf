// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/link/printable.hpp"

#include <catch2/catch.hpp>

using namespace ddp::rendezvous;
using namespace std::string_literals;

TEST_CASE("printable: text stays as it is", "[rendezvous][unit]") {
  const std::string text = "a\tb\nGr\u00fc\u00dfe \u20ac \U0001f600";
  CHECK(printable(text) == text);
}

TEST_CASE("printable: colours, titles and cursor movements are removed", "[rendezvous][unit]") {
  CHECK(printable("\x1b[1;31mred\x1b[0m \x1b]0;title\agone \x1b]8;;http://x\x1b\\link\x1b[2K\x1b[?25l") ==
        "red gone link");
}

TEST_CASE("printable: other control characters are shown, in either of their spellings", "[rendezvous][unit]") {
  CHECK(printable("a\0b\x07\x08\x7f\r"s) == "a\\x00b\\x07\\x08\\x7f\\x0d");
  CHECK(printable("\x1b"s) == "\\x1b");
  CHECK(printable("\x1b[31"s) == "\\x1b[31");
  CHECK(printable("\x1b]0;no end"s) == "\\x1b]0;no end");
  CHECK(printable("\x1b]0;no end\x1b[1m\a"s) == "\\x1b]0;no end\\x07");
  CHECK(printable("\u009b31m") == "\\u009b31m");
}

TEST_CASE("printable: characters that turn the direction of the text are shown", "[rendezvous][unit]") {
  CHECK(printable("a\u202ecba\u2066d\u2069\u200f\u061c") == "a\\u202ecba\\u2066d\\u2069\\u200f\\u061c");
  for (const char* left : {"\u2029", "\u202f", "\u2065", "\u206a", "\u200d", "\u2010", "\u061b", "\u05d0", "\u0645"}) {
    CHECK(printable(left) == left);  // their neighbours, and letters that are written from right to left
  }
}

TEST_CASE("printable: a text of nothing but beginnings takes no longer than another", "[rendezvous][unit]") {
  std::string text;
  for (int i = 0; i < 1'000'000; ++i) text += "\x1b]";  // minutes, if each were read to the end
  CHECK(printable(text).size() == 5'000'000);
}

TEST_CASE("printable: one line has no newline", "[rendezvous][unit]") {
  CHECK(printable_line("a\nb\tc\x1b[1m") == "a\\x0ab\tc");
}

TEST_CASE("printable: bytes that are not UTF-8 are replaced one by one", "[rendezvous][unit]") {
  const std::string mark = "\xef\xbf\xbd";
  CHECK(printable("\xff\xfe") == mark + mark);
  CHECK(printable("\xc3") == mark);                                          // cut short
  CHECK(printable("\xc0\x80") == mark + mark);                               // overlong, two bytes
  CHECK(printable("\xe0\x80\x80") == mark + mark + mark);                    // overlong, three bytes
  CHECK(printable("\xed\xa0\x80") == mark + mark + mark);                    // half of a surrogate pair
  CHECK(printable("\xf4\x90\x80\x80z") == mark + mark + mark + mark + "z");  // beyond U+10FFFF
}

TEST_CASE("printable: a line that is too long is cut at a whole character and marked", "[rendezvous][unit]") {
  CHECK(cut_line("12345", 5) == "12345");
  CHECK(cut_line("123456", 5) == "12345 [...]");
  CHECK(cut_line("1234\u00fc", 5) == "1234 [...]");
}
