// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/manual/completion.hpp"

#include <algorithm>
#include <iterator>

namespace ddp::apps {

namespace {

constexpr char kCommandWords[] = "chaos ps stacks";  // run_command() in commands/command.cpp

enum class Values { Unknown, Words, Files, Folders };

Values values_of(const Option& option) {
  if (option.metavar == "FILE") return Values::Files;
  if (option.metavar == "DIR") return Values::Folders;
  return choices(option).empty() ? Values::Unknown : Values::Words;
}

std::string join(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

// Returns, for example, "-r" and "--redirects".
std::vector<std::string> spellings(const Option& option) {
  std::vector<std::string> words;
  if (option.letter) words.push_back(std::string("-") + option.letter);
  words.push_back("--" + option.name);
  return words;
}

std::string replace_all(std::string text, const std::string& what, const std::string& with) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size()) {
    text.replace(at, what.size(), with);
  }
  return text;
}

// COMP_WORDS holds --tee=3 and host:80 as three words each, so `=` and `:` are words here.
constexpr char kBash[] = R"(_@command@() {
  local word value_of= i cur=${COMP_WORDS[COMP_CWORD]}
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if [[ $word == = ]]; then
      value_of=${COMP_WORDS[i - 1]}
    elif [[ $word == : ]]; then
      value_of=:
    elif [[ -n $value_of ]]; then
      value_of=
    else
      case ${word//_/-} in
        @take_a_word@) value_of=$word ;;
        --) _@command@_files -f; return ;;
        -*) ;;
        *) _@command@_files -f; return ;;
      esac
    fi
  done
  if [[ $cur == = ]]; then
    value_of=${COMP_WORDS[COMP_CWORD - 1]} cur=
  fi
  case ${value_of//_/-} in
@values@    '')
      if [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W '@options@' -- "$cur")
      else
        _@command@_files -f
        if [[ $COMP_CWORD == 1 ]]; then
          mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -W '@commands@' -- "$cur")
        fi
      fi ;;
  esac
}
_@command@_files() {
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(compgen "$1" -- "$cur")
}
complete -F _@command@ @command@
)";

std::string bash_values(const Option& option) {
  const std::string pattern = "    " + join(spellings(option), "|") + ") ";
  switch (values_of(option)) {
    case Values::Words:
      return pattern + "mapfile -t COMPREPLY < <(compgen -W '" + join(choices(option), " ") + "' -- \"$cur\") ;;\n";
    case Values::Files:
      return pattern + "_@command@_files -f ;;\n";
    case Values::Folders:
      return pattern + "_@command@_files -d ;;\n";
    case Values::Unknown:
      return "";
  }
  return "";
}

}  // namespace

std::string completion_script(const Options& options, const std::string& command) {
  std::string values;
  std::vector<std::string> words, with_value;
  for (const Option& option : options) {
    values += bash_values(option);
    std::ranges::copy(spellings(option), std::back_inserter(words));
    if (option.takes == Takes::Value) std::ranges::copy(spellings(option), std::back_inserter(with_value));
  }
  std::string script = replace_all(kBash, "@values@", values);
  script = replace_all(script, "@take_a_word@", join(with_value, "|"));
  script = replace_all(script, "@options@", join(words, " "));
  script = replace_all(script, "@commands@", command == "torchrun" ? "" : kCommandWords);
  return replace_all(script, "@command@", command);
}

}  // namespace ddp::apps
