// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/output/line_assembler.hpp"

#include <catch2/catch.hpp>
#include <vector>

using ddp::launcher::LineAssembler;
using namespace std::chrono_literals;
using namespace std::string_literals;

namespace {

using Form = LineAssembler::Form;

// A console that shows one stream, at a time that the test moves on.
struct Shown {
  explicit Shown(LineAssembler::Style style) : lines(std::move(style)) {}
  void take(std::string_view bytes) {
    lines.take(now, bytes, is_open, [this](std::string_view piece) { append(piece); });
  }
  // Lets the time go by and shows the part if it is due.
  void wait(std::chrono::milliseconds time) {
    now += time;
    if (lines.due() && *lines.due() <= now) show_part();
  }
  void show_part() {
    lines.show_part(is_open, [this](std::string_view piece) { append(piece); });
  }
  void append(std::string_view piece) {
    text += piece;
    is_open = !text.empty() && text.back() != '\n';
  }
  // Does what a sink does when another stream writes.
  void interrupt(const std::string& line) {
    if (is_open) text += '\n';
    text += line + "\n";
    is_open = false;
  }

  LineAssembler lines;
  LineAssembler::Clock::time_point now{1h};
  std::string text;
  bool is_open = false;
};

Shown prefixed() { return Shown({.form = Form::Prefixed, .prefix = "[0]:"}); }
Shown prefixed_on_terminal() { return Shown({.form = Form::Prefixed, .prefix = "[0]:", .on_terminal = true}); }
Shown whole() { return Shown({}); }

}  // namespace

TEST_CASE("line assembler: each line has the prefix and is shown when it ends", "[launcher][unit]") {
  Shown console = prefixed();
  console.take("one\ntwo\nth");
  CHECK(console.text == "[0]:one\n[0]:two\n");
  console.take("r");
  console.take("ee\n\n");
  CHECK(console.text == "[0]:one\n[0]:two\n[0]:three\n[0]:\n");
  CHECK(!console.lines.due());
}

TEST_CASE("line assembler: a part is shown 0.2 s after its first byte, its rest at once and without a second prefix",
          "[launcher][unit]") {
  Shown console = prefixed();
  console.take("10% ");
  console.wait(150ms);
  console.take("done");
  CHECK(console.text.empty());
  console.wait(50ms);
  CHECK(console.text == "[0]:10% done");
  CHECK(!console.lines.due());
  console.take(" 20%");
  CHECK(console.text == "[0]:10% done 20%");
  console.take("\nnext\n");
  CHECK(console.text == "[0]:10% done 20%\n[0]:next\n");
}

TEST_CASE("line assembler: the rest of a part that another stream's line has ended has the prefix again",
          "[launcher][unit]") {
  Shown console = prefixed();
  console.take("Name? ");
  console.wait(200ms);
  console.interrupt("[1]:other");
  console.take("Bob\n");
  CHECK(console.text == "[0]:Name? \n[1]:other\n[0]:Bob\n");
  console.take("Age? ");
  console.wait(200ms);
  console.interrupt("[1]:other");
  console.take("\n");  // ended already: no empty line
  CHECK(console.text == "[0]:Name? \n[1]:other\n[0]:Bob\n[0]:Age? \n[1]:other\n");
  console.take("\n");
  CHECK(console.text == "[0]:Name? \n[1]:other\n[0]:Bob\n[0]:Age? \n[1]:other\n[0]:\n");
}

TEST_CASE("line assembler: of a line that '\\r' begins again, the newest state is shown every 0.2 s",
          "[launcher][unit]") {
  Shown console = prefixed();
  for (int percent = 0; percent < 60; ++percent) {
    console.take("\r" + std::to_string(percent) + "%");
    console.wait(10ms);
  }
  CHECK(console.text == "[0]:19%\n[0]:39%\n[0]:59%");
  console.take("\r100%");
  console.take("\nend\n");
  CHECK(console.text == "[0]:19%\n[0]:39%\n[0]:59%\n[0]:100%\n[0]:end\n");
}

TEST_CASE("line assembler: on a terminal the newest state is written over the one before", "[launcher][unit]") {
  Shown console = prefixed_on_terminal();
  console.take("step 100\r");
  console.wait(200ms);
  console.take("step 99\r");
  console.wait(200ms);
  CHECK(console.text == "[0]:step 100\r[0]:step 99 ");
  console.take("end\r\n");
  CHECK(console.text == "[0]:step 100\r[0]:step 99 \r[0]:end    \n");
  console.take("\r\xe2\x96\x88\xe2\x96\x88");
  console.wait(200ms);
  console.interrupt("[1]:other");
  console.take("\r\xe2\x96\x88");
  console.wait(200ms);
  CHECK(console.text ==
        "[0]:step 100\r[0]:step 99 \r[0]:end    \n[0]:\xe2\x96\x88\xe2\x96\x88\n[1]:other\n[0]:\xe2\x96\x88");
}

TEST_CASE("line assembler: \\r\\n ends a line, also in two pieces", "[launcher][unit]") {
  Shown console = prefixed();
  console.take("a\r\nb\r");
  console.take("\nc\r");
  console.take("\r\n");
  CHECK(console.text == "[0]:a\n[0]:b\n[0]:c\n");
  console.take("1%\r2%\r\n");
  CHECK(console.text == "[0]:a\n[0]:b\n[0]:c\n[0]:2%\n");
  console.take("x\r");
  console.wait(200ms);
  console.take("\n");
  CHECK(console.text == "[0]:a\n[0]:b\n[0]:c\n[0]:2%\n[0]:x\n");
}

TEST_CASE("line assembler: a part that a full stdio buffer cut waits for its rest", "[launcher][unit]") {
  Shown console = prefixed();
  const std::string line(100, 'x');
  std::string buffer;
  while (buffer.size() < LineAssembler::kBuffer) buffer += line + "\n";
  const std::string rest = buffer.substr(LineAssembler::kBuffer);
  buffer.resize(LineAssembler::kBuffer);
  console.take("flushed\n");
  console.take(buffer);
  const std::string before = console.text;
  console.wait(29s);
  CHECK(console.text == before);
  console.take(rest);
  CHECK(console.text.substr(console.text.size() - line.size() - 6) == "\n[0]:" + line + "\n");
  console.take(std::string(LineAssembler::kBuffer - rest.size() - 8, 'y'));
  console.wait(30s);
  CHECK(console.text.back() == 'y');
}

TEST_CASE("line assembler: a long part waits until no byte has come for 0.2 s, or it is too long", "[launcher][unit]") {
  Shown console({.form = Form::Prefixed, .prefix = "[0]:", .most_held = 1 << 20});
  const std::string piece(70'001, 'x');
  std::size_t taken = 0;
  for (int i = 0; i < 10; ++i) {
    console.take(piece);
    taken += piece.size();
    console.wait(150ms);
  }
  CHECK(console.text.empty());
  console.wait(50ms);
  CHECK((console.text == "[0]:" + std::string(taken, 'x')));
  console.take(std::string((1 << 20) + 1, 'y') + "");
  CHECK((console.text == "[0]:" + std::string(taken, 'x') + std::string((1 << 20) + 1, 'y')));
  console.take("\n" + piece + "\n");
  CHECK(console.text.size() == 4 + taken + (1 << 20) + 2 + 4 + piece.size() + 1);
}

TEST_CASE("line assembler: whole lines keep their bytes, and their parts are shown after 0.2 s too",
          "[launcher][unit]") {
  Shown console = whole();
  console.take("a\rb\rc\n\0\xff\nName"s);
  CHECK(console.text == "a\rb\rc\n\0\xff\n"s);
  console.wait(200ms);
  CHECK(console.text == "a\rb\rc\n\0\xff\nName"s);
  console.interrupt("other");
  console.take("\nBob\n");
  CHECK(console.text == "a\rb\rc\n\0\xff\nName\nother\nBob\n"s);
}

TEST_CASE("line assembler: a carriage return ends a whole line on a terminal, at once", "[launcher][unit]") {
  Shown console({.on_terminal = true});
  console.take("10%\r20");
  CHECK(console.text == "10%\r");
  console.take("%\r");
  CHECK(console.text == "10%\r20%\r");
}

TEST_CASE("line assembler: the last line may have no end", "[launcher][unit]") {
  Shown console = prefixed();
  console.take("one\nend");
  console.show_part();
  CHECK(console.text == "[0]:one\n[0]:end");
}

TEST_CASE("line assembler: at a prompt each key's echo is shown at once, unless another stream's line came between",
          "[launcher][unit]") {
  Shown console = whole();
  console.take("(Pdb) ");
  console.wait(200ms);
  for (const char* key : {"p", " ", "x"}) console.take(key);
  CHECK(console.text == "(Pdb) p x");
  console.interrupt("other");
  console.take("y");
  CHECK(console.text == "(Pdb) p x\nother\n");
}

TEST_CASE("line assembler: on a terminal the cursor moves of nested progress bars are left out, colours are not",
          "[launcher][unit]") {
  Shown terminal = prefixed_on_terminal();
  terminal.take("\n\r\x1b[32m10%\x1b[0m\x1b[A\n\x1b[2Kend\x1b[1;1H\n");
  CHECK(terminal.text == "[0]:\n[0]:\x1b[32m10%\x1b[0m\n[0]:\x1b[2Kend\n");
  Shown file = prefixed();
  file.take("10%\x1b[A\n");
  CHECK(file.text == "[0]:10%\x1b[A\n");
}
