// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/coordination/leader_note.hpp"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "rendezvous/base/text.hpp"
#include "rendezvous/net/addresses/numeric_address.hpp"

namespace ddp::launcher {

namespace {

constexpr std::size_t kMostWordBytes = 255;

// A word that can be shown in a terminal.
bool is_plain(const std::string& word) {
  return !word.empty() && word.size() <= kMostWordBytes &&
         std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::isgraph(c) != 0; });
}

// An address at which one machine can be reached, and not this one whatever it is, as "0.0.0.0" would be.
bool leads_somewhere(const std::string& address) {
  const std::string numeric = rendezvous::numeric_address(address);
  return !numeric.empty() && numeric != "0.0.0.0" && numeric != "::";
}

// Takes one line. Returns whether it may be part of a note.
bool take_line(const std::string& name, const std::string& value, LeaderNote& note) {
  if (!is_plain(value)) return false;
  if (name == "node" && note.node.empty()) {
    note.node = value;
  } else if (name == "host" && note.host.empty()) {
    note.host = value;
  } else if (name == "address" && note.addresses.size() < kMostNoteAddresses && leads_somewhere(value)) {
    note.addresses.push_back(value);
  } else if (name == "port" && note.port == 0) {
    note.port = rendezvous::parse_number<std::uint16_t>(value).value_or(0);
    return note.port != 0;
  } else {
    return false;
  }
  return true;
}

}  // namespace

std::string text_of(const LeaderNote& note) {
  std::string text = "node " + note.node + "\nhost " + note.host + "\n";
  for (const std::string& address : note.addresses) text += "address " + address + "\n";
  return text + "port " + std::to_string(note.port) + "\n";
}

std::variant<LeaderNote, std::string> read_leader_note(const std::string& text) {
  if (text.size() > kMostNoteBytes) return "it has " + rendezvous::describe_bytes(text.size());
  LeaderNote note;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::size_t blank = std::min(line.find(' '), line.size());
    const std::string value = line.substr(std::min(blank + 1, line.size()));
    if (!take_line(line.substr(0, blank), value, note)) return "line " + std::to_string(number) + " is strange";
  }
  if (note.node.empty() || note.host.empty() || note.addresses.empty() || note.port == 0) {
    return std::string("it lacks a line: node, host, address and port are needed");
  }
  return note;
}

}  // namespace ddp::launcher
