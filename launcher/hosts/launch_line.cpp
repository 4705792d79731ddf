// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/hosts/launch_line.hpp"

#include <elf.h>
#include <link.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "launcher/hosts/wire/greeting.hpp"
#include "rendezvous/base/error.hpp"

namespace ddp::launcher {
namespace {

std::string hex_of(const unsigned char* bytes, std::size_t size) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < size; ++i) text.append({kDigits[bytes[i] >> 4], kDigits[bytes[i] & 15]});
  return text;
}

std::size_t padded(std::size_t size) { return (size + 3) & ~std::size_t{3}; }

// Looks through the notes of the first object, which is the program itself.
int find_build_id(dl_phdr_info* object, std::size_t, void* id) {
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object->dlpi_phdr[i];
    if (part.p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const unsigned char*>(object->dlpi_addr + part.p_vaddr);
    const auto* const end = at + part.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const unsigned char* const name = at + sizeof note;
      const unsigned char* const content = name + padded(note.n_namesz);
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
        *static_cast<std::string*>(id) = hex_of(content, note.n_descsz);
        return 1;
      }
      at = content + padded(note.n_descsz);
    }
  }
  return 1;
}

// The script for sh. It must have no single quote, which ends it; no '!' and no backslash, which csh and fish read
// within quotes; and no newline. The greeting is put together, so that a shell that prints its commands does not greet.
// stat starts in half of the time of find, whose -perm would say the same; without an answer of stat, nothing is
// started. The new program gets its name when it is whole, so that no host that shares the folder runs half of it. Its
// checksum lies beside it. A program with another one is replaced: a power cut may have left zeros in it, at its full
// size.
constexpr char kScript[] =
    R"sh(u=$(umask); umask 077; c="$HOME/.cache"; d="$c/ddprun/@ID@"; p="$d/ddprun"; m=ddprun@host; )sh"
    R"sh(no() { echo "$m/1: cannot $*"; exit 1; }; )sh"
    R"sh(for x in "$HOME" "$c" "$c/ddprun" "$d"; do )sh"
    R"sh(test -d "$x" || e=$(mkdir "$x" 2>&1) || test -d "$x" || no "make $x: $e"; )sh"
    R"sh(test -O "$x" || no "use $x, which must be a folder of this user"; done; )sh"
    R"sh(test -L "$c/ddprun" && no "use $c/ddprun, which is a link"; test -L "$d" && no "use $d, which is a link"; )sh"
    R"sh(set -- $(stat -L -c %a "$HOME" "$c" "$c/ddprun" "$d" "$p" 2>/dev/null); )sh"
    R"sh(for x in "$HOME" "$c" "$c/ddprun" "$d"; do case $1 in *[0145][0145]) shift;; )sh"
    R"sh(*) no "use $x, in which other users may write (mode $1): chmod go-w $x allows it";; esac; done; )sh"
    R"sh(k=; test -f "$p" && test -f "$d/cksum" && read -r k <"$d/cksum"; )sh"
    R"sh(if test -L "$p" || test -d "$p" || { test "$1" = 700 && test "$k" && test "$(cksum <"$p")" = "$k"; }; then :; )sh"
    R"sh(else echo "$m/1: send"; t=$(mktemp "$d/new.XXXXXX" 2>&1) || no "write in $d: $t"; )sh"
    R"sh(e=$(head -c @SIZE@ 2>&1 >"$t"); )sh"
    R"sh(test "$(wc -c <"$t")" -eq @SIZE@ || { rm -f "$t"; no "write all of the program to $d: $e"; }; )sh"
    R"sh(rm -f "$d/cksum"; cksum <"$t" >"$d/cksum" && chmod 700 "$t" && mv -f "$t" "$p" || no "write $p"; fi; )sh"
    R"sh(test -L "$p" && no "run $p, which is a link"; test -f "$p" && test -O "$p" || no "run $p, which must belong to this user"; )sh"
    R"sh(umask "$u"; exec "$p" @ON_HOST@)sh";

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) {
    text.replace(at, what.size(), by);
  }
  return text;
}

bool is_ssh(const std::string& program) { return program.substr(program.rfind('/') + 1) == "ssh"; }

// Returns the number of ssh's words before its destination: "ssh", its options and their values.
std::size_t words_before_destination(const std::vector<std::string>& words) {
  constexpr char kWithValue[] = "BbcDEeFIiJLlmOoPpQRSWw";  // the rest of the word, or else the next word
  std::size_t at = 1;
  while (at < words.size() && words[at].starts_with('-') && words[at] != "--") {
    at += words[at].find_first_of(kWithValue, 1) == words[at].size() - 1 ? 2U : 1U;
  }
  return std::min(at, words.size());
}

// Returns the text as one word for a shell. Neither csh nor fish reads it otherwise than sh.
std::string as_one_word(const std::string& text) { return "'" + replaced(text, "'", R"('"'"')") + "'"; }

bool has(const std::vector<std::string>& words, const char* what) {
  for (const std::string& word : words) {
    if (word.find(what) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

Build own_build() {
  Build build;
  dl_iterate_phdr(find_build_id, &build.id);
  if (build.id.empty()) {
    throw rendezvous::Error(rendezvous::ErrorCode::System,
                            "this ddprun was linked without a build id (--build-id), by which hosts know it; start "
                            "ddprun on each host");
  }
  struct stat status = {};
  if (stat("/proc/self/exe", &status) != 0) {
    rendezvous::system_error("/proc/self/exe");
  }
  build.size = static_cast<std::size_t>(status.st_size);
  return build;
}

std::string launch_line(const Build& build) {
  std::string script = replaced(kScript, "@ID@", build.id);
  script = replaced(script, "@SIZE@", std::to_string(build.size));
  return "exec sh -c '" + replaced(script, "@ON_HOST@", kOnHost) + "'";
}

std::vector<std::string> split_agent(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  bool is_word = false;
  char quote = 0;
  for (const char c : text) {
    const bool is_blank = c == ' ' || c == '\t';
    if (quote != 0 && c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
      is_word = true;
    } else if (quote == 0 && is_blank) {
      if (is_word) words.push_back(word);
      word.clear();
      is_word = false;
    } else {
      word += c;
      is_word = true;
    }
  }
  if (quote != 0) rendezvous::invalid_argument("--launch-agent " + text + ": a quote is not closed");
  if (is_word) words.push_back(word);
  if (words.empty()) rendezvous::invalid_argument("--launch-agent names no program");
  return words;
}

std::vector<std::string> launch_command(const std::vector<std::string>& agent, const Host& host,
                                        const std::string& line) {
  const std::string place = (host.user.empty() ? "" : host.user + "@") + host.name;
  const std::string port = host.port ? std::to_string(*host.port) : "22";
  const bool names_port = has(agent, "{port}");
  std::vector<std::string> command;
  for (const std::string& word : agent) command.push_back(replaced(replaced(word, "{host}", place), "{port}", port));
  if (!has(agent, "{host}")) command.push_back(place);
  if (is_ssh(agent[0])) {
    // ssh takes the first of two values for an option: the user's. A connection that jobs share would end with the
    // first of them.
    std::vector<std::string> options;
    for (const char* setting : {"BatchMode=yes", "ServerAliveInterval=5", "ServerAliveCountMax=3", "ControlMaster=no",
                                "ControlPath=none", "ExitOnForwardFailure=no", "RemoteCommand=none"}) {
      options.insert(options.end(), {"-o", setting});
    }
    options.push_back("-T");
    if (host.port && !names_port) options.insert(options.end(), {"-p", port});
    const std::size_t at = words_before_destination(command);
    const bool has_remote_words = at + 1 < command.size();  // ssh would join them and the line with blanks
    command.insert(command.begin() + static_cast<std::ptrdiff_t>(at), options.begin(), options.end());
    command.push_back(has_remote_words ? as_one_word(line) : line);
    return command;
  }
  if (host.port && !names_port) {
    rendezvous::invalid_argument("the hostfile gives a port for " + host.name + ", and --launch-agent has no {port}");
  }
  command.push_back(line);
  return command;
}

}  // namespace ddp::launcher
