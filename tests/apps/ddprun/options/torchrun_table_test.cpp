// SPDX-License-Identifier: BSD-3-Clause
// Compares docs/torchrun.md with the options: it has a row for each of them, and for nothing else.
#include <catch2/catch.hpp>
#include <fstream>
#include <regex>
#include <set>
#include <string>

#include "apps/ddprun/options/given_options.hpp"

using namespace ddp::apps;

namespace {

struct Row {
  std::string options;  // its first cell
  std::string here;     // its second one
};

std::vector<Row> rows_under(const std::string& title) {
  std::ifstream page(TORCHRUN_PAGE);
  REQUIRE(page);
  const std::regex shape(R"(\| (`[^|]*) \| ([^|]+) \|.*)");
  std::vector<Row> rows;
  bool inside = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("## ")) inside = line == "## " + title;
    std::smatch cells;
    if (inside && std::regex_match(line, cells, shape)) rows.push_back({cells[1], cells[2]});
  }
  return rows;
}

// Returns the cell of an option as the page writes it: "`-m`, `--module`".
std::string cell_of(const Option& option) {
  return (option.letter ? std::string("`-") + option.letter + "`, " : "") + "`--" + option.name + "`";
}

std::multiset<std::string> cells_of(Origin origin) {
  GivenOptions given;
  Declaration declaration;
  declare(declaration, given);
  std::multiset<std::string> cells;
  for (const Option& option : declaration.options()) {
    if (option.origin == origin) cells.insert(cell_of(option));
  }
  return cells;
}

std::multiset<std::string> cells_under(const std::string& title) {
  std::multiset<std::string> cells;
  for (const Row& row : rows_under(title)) cells.insert(row.options);
  return cells;
}

}  // namespace

TEST_CASE("torchrun page: each option of torchrun has one row, and each row is one", "[apps][unit]") {
  CHECK(cells_under("torchrun's options") == cells_of(Origin::Torchrun));
}

TEST_CASE("torchrun page: each option of ddprun's own has one row, and each row is one", "[apps][unit]") {
  CHECK(cells_under("ddprun's own options") == cells_of(Origin::Ddprun));
}

TEST_CASE("torchrun page: every row says one of the words that the page explains", "[apps][unit]") {
  const std::set<std::string> words = {"same", "better", "other", "accepted", "not there"};
  for (const char* title : {"torchrun's options", "Variables"}) {
    const auto rows = rows_under(title);
    CHECK(rows.size() > 10);
    for (const Row& row : rows) {
      CAPTURE(row.options);
      CHECK(words.contains(row.here));
    }
  }
}
