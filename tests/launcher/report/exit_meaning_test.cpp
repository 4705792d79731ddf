// SPDX-License-Identifier: BSD-3-Clause
// Compares the table of signals in docs/failures.md with the words of the report.
#include "launcher/report/exit_meaning.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <fstream>
#include <map>
#include <regex>
#include <string>

#include "rendezvous/base/text.hpp"

using namespace ddp::launcher;

namespace {

// Returns what the page says about each signal, by its exit code.
std::map<int, std::string> words_of_page() {
  std::ifstream page(FAILURES_PAGE);
  REQUIRE(page);
  const std::regex shape(R"(\| SIG\w+ \| (\d+) \| ([^|]+) \|)");
  std::map<int, std::string> words;
  for (std::string line; std::getline(page, line);) {
    std::smatch cells;
    if (!std::regex_match(line, cells, shape)) continue;
    std::string text = std::regex_replace(cells[2].str(), std::regex(R"(\\\\)"), "\\");
    std::erase(text, '`');
    words[std::stoi(cells[1])] = text;
  }
  return words;
}

}  // namespace

TEST_CASE("exit meaning: the page has the report's words about each signal", "[launcher][unit]") {
  const auto page = words_of_page();
  CHECK(page.size() >= 16);
  for (int signal = 1; signal < NSIG; ++signal) {
    const std::string meaning = meaning_of({0, signal}, "");
    CAPTURE(ddp::rendezvous::signal_name(signal));
    REQUIRE(page.contains(128 + signal) == !meaning.empty());
    if (!meaning.empty()) CHECK(page.at(128 + signal).starts_with(meaning));
  }
}
