// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/hosts/wire/job_header.hpp"

#include <utility>

#include "rendezvous/base/error.hpp"
#include "rendezvous/base/length_bytes.hpp"
#include "rendezvous/base/text.hpp"

namespace ddp::launcher {
namespace {

// Writes pairs of a name and a value, each behind its length in 4 bytes, the highest first.
class PairWriter {
 public:
  void add(std::string_view name, std::string_view value) {
    for (const std::string_view word : {name, value}) {
      rendezvous::append_length(text_, word.size());
      text_ += word;
    }
  }
  void add(std::string_view name, long value) { add(name, std::to_string(value)); }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

[[noreturn]] void refuse_pairs(const std::string& what) {
  throw rendezvous::Error(rendezvous::ErrorCode::Corrupt, what);
}

// Takes the next word, a name or a value, off the text. A word has no NUL.
std::string take_word(std::string_view& text) {
  if (text.size() < rendezvous::kLengthBytes) refuse_pairs("a pair that is cut off");
  const std::size_t length = rendezvous::length_at_begin(text);
  text.remove_prefix(rendezvous::kLengthBytes);
  if (length > text.size()) refuse_pairs("a word of " + std::to_string(length) + " bytes, of which not all are there");
  std::string word(text.substr(0, length));
  text.remove_prefix(length);
  if (word.find('\0') != std::string::npos) refuse_pairs("a word with a NUL in it");
  return word;
}

// Returns the number that is the value of `name`.
int number_of(const std::string& name, const std::string& text, int low, int high) {
  const auto number = rendezvous::parse_number<int>(text);
  if (number && *number >= low && *number <= high) return *number;
  refuse_pairs("the value \"" + text + "\" of " + name + ", which is not a number from " + std::to_string(low) +
               " to " + std::to_string(high));
}

// Returns the text, which must be "NAME=value".
std::string variable_of(const std::string& text) {
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0) refuse_pairs("a variable without a name");
  return text;
}

// Returns whether the pair belongs to the place.
bool take_place(HostPlace& place, const std::string& name, const std::string& value) {
  if (name == "nodes") return place.nodes = number_of(name, value, 1, 100'000), true;
  if (name == "node_rank") return place.node_rank = number_of(name, value, 0, 99'999), true;
  if (name == "master_addr") return place.master_addr = value, true;
  if (name == "master_port") {
    return place.master_port = static_cast<std::uint16_t>(number_of(name, value, 0, 65535)), true;
  }
  if (name == "id") return place.id = value, true;
  if (name == "workers") return place.workers = number_of(name, value, 1, 100'000), true;
  if (name == "gpus") return place.gpus = value, true;
  if (name != "secret") return false;
  place.secret = rendezvous::secret_of(value);
  if (!place.secret) refuse_pairs("a secret that is not 64 hexadecimal digits");
  return true;
}

void check(const JobHeader& header) {
  const HostPlace& place = header.place;
  if (place.node_rank >= place.nodes) refuse_pairs("a node rank that is not below the number of nodes");
  if (header.arguments.empty()) refuse_pairs("no arguments");
  if (!header.folder.starts_with('/')) refuse_pairs("no folder");
  if (place.nodes > 1 && (place.master_addr.empty() || place.master_port == 0 || !place.secret)) {
    refuse_pairs("no address, port or secret for several nodes");
  }
}

}  // namespace

std::string to_text(const JobHeader& header) {
  PairWriter pairs;
  const HostPlace& place = header.place;
  pairs.add("nodes", place.nodes);
  pairs.add("node_rank", place.node_rank);
  pairs.add("master_addr", place.master_addr);
  pairs.add("master_port", place.master_port);
  pairs.add("id", place.id);
  if (place.secret) pairs.add("secret", rendezvous::digits_of(*place.secret));
  if (place.workers) pairs.add("workers", *place.workers);
  pairs.add("gpus", place.gpus);
  for (const std::string& argument : header.arguments) pairs.add("argument", argument);
  for (const std::string& variable : header.variables) pairs.add("variable", variable);
  pairs.add("folder", header.folder);
  pairs.add("called_as", header.called_as);
  pairs.add("own_folder", header.own_folder);
  pairs.add("python", header.python);
  pairs.add("shutdown_timeout", static_cast<long>(header.shutdown_timeout.count()));
  pairs.add("silence", static_cast<long>(header.silence.count()));
  return pairs.take();
}

JobHeader job_header_from(std::string_view text) {
  JobHeader header;
  while (!text.empty()) {
    const std::string name = take_word(text);
    std::string value = take_word(text);
    if (take_place(header.place, name, value)) continue;
    if (name == "argument") {
      header.arguments.push_back(std::move(value));
    } else if (name == "variable") {
      header.variables.push_back(variable_of(value));
    } else if (name == "folder") {
      header.folder = std::move(value);
    } else if (name == "called_as") {
      header.called_as = std::move(value);
    } else if (name == "own_folder") {
      header.own_folder = std::move(value);
    } else if (name == "python") {
      header.python = std::move(value);
    } else if (name == "shutdown_timeout") {
      header.shutdown_timeout = std::chrono::seconds(number_of(name, value, 0, 1'000'000));
    } else if (name == "silence") {
      header.silence = std::chrono::seconds(number_of(name, value, 1, 1'000'000));
    } else {
      refuse_pairs("the name \"" + name + "\", which is not known");
    }
  }
  check(header);
  return header;
}

std::string to_text(const Hello& hello) {
  PairWriter pairs;
  pairs.add("host", hello.host);
  pairs.add("address", hello.address);
  pairs.add("caller_address", hello.caller_address);
  pairs.add("port", hello.port);
  pairs.add("machine", hello.machine);
  return pairs.take();
}

Hello hello_from(std::string_view text) {
  Hello hello;
  while (!text.empty()) {
    const std::string name = take_word(text);
    const std::string value = take_word(text);
    if (name == "host") hello.host = value;
    if (name == "address") hello.address = value;
    if (name == "caller_address") hello.caller_address = value;
    if (name == "machine") hello.machine = value;
    if (name == "port") hello.port = static_cast<std::uint16_t>(number_of(name, value, 1, 65535));
  }
  if (hello.address.empty() || hello.port == 0) refuse_pairs("no address or no port");
  return hello;
}

}  // namespace ddp::launcher
