// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/hosts/host_list.hpp"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <sstream>
#include <string_view>

#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/link/printable.hpp"

namespace ddp::launcher {
namespace {

using rendezvous::invalid_argument;
using rendezvous::parse_number;

constexpr int kMostSlots = 100'000;
constexpr std::size_t kMostNameBytes = 255;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream list(text);
  for (std::string part; std::getline(list, part, separator);) parts.push_back(part);
  return parts;
}

std::string quoted(const std::string& text) { return "'" + text + "'"; }

// A name that begins with '-' would be an option of ssh. Letters of other languages may be in it.
bool may_be_name(const std::string& text, const char* more) {
  const auto fits = [more](unsigned char c) { return std::isalnum(c) || c >= 0x80 || std::strchr(more, c) != nullptr; };
  return !text.empty() && text.size() <= kMostNameBytes && text[0] != '-' && rendezvous::printable_line(text) == text &&
         std::all_of(text.begin(), text.end(), fits);
}

// Whether name and user can be nothing but that to ssh.
bool can_be_called(const Host& host) {
  return may_be_name(host.name, "._-:%") && (host.user.empty() || may_be_name(host.user, "._-\\@+"));
}

int slots_of(const std::string& text, const std::string& where) {
  const auto number = parse_number<int>(text);
  if (number && *number > 0 && *number <= kMostSlots) return *number;
  invalid_argument(where + ": " + quoted(text) + " is not a number of slots; give 1 or more");
}

// Parses "[user@]host[:slots]"; an IPv6 address with slots stands in brackets.
Host parse_host(const std::string& text, const std::string& where) {
  Host host;
  const auto at = text.rfind('@');
  std::string rest = at == std::string::npos ? text : text.substr(at + 1);
  if (at != std::string::npos) host.user = text.substr(0, at);
  std::optional<std::string> slots;
  if (rest.starts_with('[')) {
    const auto end = rest.find(']');
    const bool is_whole = end != std::string::npos && (end + 1 == rest.size() || rest[end + 1] == ':');
    if (!is_whole) invalid_argument(where + ": " + quoted(text) + ": give [ADDRESS] or [ADDRESS]:SLOTS");
    host.name = rest.substr(1, end - 1);
    if (end + 1 < rest.size()) slots = rest.substr(end + 2);
  } else if (std::count(rest.begin(), rest.end(), ':') == 1) {
    host.name = rest.substr(0, rest.find(':'));
    slots = rest.substr(rest.find(':') + 1);
  } else {
    host.name = rest;
  }
  if (!can_be_called(host) || (at != std::string::npos && host.user.empty())) {
    invalid_argument(where + ": " + quoted(text) + " is not a host; give HOST, HOST:SLOTS or USER@HOST");
  }
  if (slots) host.slots = slots_of(*slots, where);
  return host;
}

// Adds the host. One that is listed before gets these slots too: a line without slots stands for one.
void add(std::vector<Host>& hosts, Host host, const std::string& where) {
  for (Host& known : hosts) {
    if (known.name != host.name || known.user != host.user || known.port != host.port) continue;
    known.slots = known.slots.value_or(1) + host.slots.value_or(1);
    if (*known.slots > kMostSlots) invalid_argument(where + ": " + host.name + " has too many slots");
    return;
  }
  hosts.push_back(std::move(host));
}

void set_key(Host& host, const std::string& key, const std::string& value, const std::string& where) {
  if (key == "slots") {
    if (host.slots) invalid_argument(where + ": slots of " + host.name + " are given twice");
    host.slots = slots_of(value, where);
  } else if (key == "max_slots" || key == "max-slots") {
    slots_of(value, where);  // a limit for programs that choose a number themselves
  } else if (key == "port") {
    const auto port = parse_number<std::uint16_t>(value);
    if (!port.value_or(0)) invalid_argument(where + ": " + quoted(value) + " is not a port");
    host.port = *port;
  } else if (key == "user" || key == "username") {
    if (!may_be_name(value, "._-\\@+")) invalid_argument(where + ": " + quoted(value) + " is not a user");
    host.user = value;
  } else {
    invalid_argument(where + ": " + quoted(key + "=" + value) +
                     " is not known; give slots=, max_slots=, port= or user=");
  }
}

// Returns the words of a line without its comment; "slots = 2" is one word, as for Open MPI.
std::vector<std::string> words_of_line(std::string line) {
  line = line.substr(0, line.find('#'));
  std::string joined;
  for (const char c : line) {
    const bool is_blank = c == ' ' || c == '\t' || c == '\r';
    if (c == '=') joined.erase(joined.find_last_not_of(' ') + 1);
    if (!is_blank) joined += c;
    if (is_blank && !joined.empty() && joined.back() != '=') joined += ' ';
  }
  std::vector<std::string> words;
  std::istringstream list(joined);
  for (std::string word; list >> word;) words.push_back(word);
  return words;
}

// A part of --include or --exclude.
struct Choice {
  std::string host;
  std::vector<int> slots = {};  // empty: the whole host
};

std::vector<Choice> parse_choices(const std::string& text, const std::string& option) {
  std::vector<Choice> choices;
  for (const std::string& part : split(text, '@')) {
    const auto colon = part.rfind(':');
    const bool has_slots = colon != std::string::npos && std::count(part.begin(), part.end(), ':') == 1;
    Choice choice{has_slots ? part.substr(0, colon) : part};
    for (const std::string& slot : split(has_slots ? part.substr(colon + 1) : "", ',')) {
      const auto number = parse_number<int>(slot);
      if (!number || *number < 0) {
        invalid_argument(option + " " + text + ": " + quoted(slot) + " is not the number of a slot");
      }
      choice.slots.push_back(*number);
    }
    if (choice.host.find(',') != std::string::npos) {
      invalid_argument(option + " " + text + ": write @ between hosts, and commas between slots: a@b:0,2");
    }
    choices.push_back(std::move(choice));
  }
  return choices;
}

std::vector<int> slots_left(const Host& host, const Choice& choice, bool is_included, const std::string& option) {
  if (!host.slots) {
    invalid_argument(option + " names slots of " + host.name + ", of which nobody has said how many there are; write " +
                     host.name + " slots=N into the hostfile");
  }
  const auto chosen = [&](int slot) { return std::find(choice.slots.begin(), choice.slots.end(), slot); };
  for (const int slot : choice.slots) {
    if (slot < *host.slots) continue;
    invalid_argument(option + ": " + host.name + " has " + std::to_string(*host.slots) +
                     " slots, so none with number " + std::to_string(slot) + "; the first is 0");
  }
  std::vector<int> left;
  for (int slot = 0; slot < *host.slots; ++slot) {
    if ((chosen(slot) != choice.slots.end()) == is_included) left.push_back(slot);
  }
  return left;
}

void refuse_unknown(const std::vector<Choice>& choices, const std::vector<Host>& hosts, const std::string& option) {
  std::vector<std::string> names;
  for (const Host& host : hosts) names.push_back(host.name);
  for (const Choice& choice : choices) {
    if (std::find(names.begin(), names.end(), choice.host) != names.end()) continue;
    invalid_argument(option + ": there is no host " + quoted(choice.host) + " in the list, which has " +
                     rendezvous::list_of(names, 8));
  }
}

}  // namespace

std::vector<Host> parse_hosts(const std::string& text) {
  std::vector<Host> hosts;
  for (const std::string& part : split(text, ',')) {
    const std::string where = "--hosts " + text;
    add(hosts, parse_host(part, where), where);
  }
  if (hosts.empty()) invalid_argument("--hosts names no host; give HOST:SLOTS,HOST:SLOTS");
  return hosts;
}

std::vector<Host> parse_hostfile(const std::string& content, const std::string& path) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // an editor of Windows may begin the file with it
  const bool has_mark = content.starts_with(kByteOrderMark);
  std::vector<Host> hosts;
  int number = 0;
  for (const std::string& line : split(content.substr(has_mark ? kByteOrderMark.size() : 0), '\n')) {
    const std::string where = path + ":" + std::to_string(++number);
    const std::vector<std::string> words = words_of_line(line);
    if (words.empty()) continue;
    Host host = parse_host(words[0], where);
    for (std::size_t i = 1; i < words.size(); ++i) {
      const auto equals = words[i].find('=');
      if (equals == std::string::npos) {
        invalid_argument(where + ": " + quoted(words[i]) + " is not KEY=VALUE; a line is HOST slots=N");
      }
      set_key(host, words[i].substr(0, equals), words[i].substr(equals + 1), where);
    }
    add(hosts, std::move(host), where);
  }
  if (hosts.empty()) invalid_argument(path + " names no host; a line is HOST slots=N");
  return hosts;
}

std::vector<Host> choose_hosts(std::vector<Host> hosts, const std::string& include, const std::string& exclude) {
  if (include.empty() && exclude.empty()) return hosts;
  if (!include.empty() && !exclude.empty()) invalid_argument("--include and --exclude contradict each other; give one");
  const bool is_included = !include.empty();
  const std::string option = is_included ? "--include" : "--exclude";
  const std::vector<Choice> choices = parse_choices(is_included ? include : exclude, option);
  refuse_unknown(choices, hosts, option);
  std::vector<Host> left;
  for (Host& host : hosts) {
    const auto choice =
        std::find_if(choices.begin(), choices.end(), [&](const Choice& c) { return c.host == host.name; });
    const bool is_named = choice != choices.end();
    if (is_named && !choice->slots.empty()) {
      host.chosen_slots = slots_left(host, *choice, is_included, option);
      host.slots = static_cast<int>(host.chosen_slots.size());
      if (host.chosen_slots.empty()) continue;
    } else if (is_named != is_included) {
      continue;
    }
    left.push_back(std::move(host));
  }
  if (left.empty()) invalid_argument(option + " leaves no host of the list");
  return left;
}

bool is_this_machine(const Host& host, const std::string& own_name) {
  if (!host.user.empty() || host.port) return false;
  const auto short_name = [](const std::string& name) { return name.substr(0, name.find('.')); };
  return host.name == "localhost" || host.name == "127.0.0.1" || host.name == "::1" || host.name == own_name ||
         host.name == short_name(own_name);
}

}  // namespace ddp::launcher
