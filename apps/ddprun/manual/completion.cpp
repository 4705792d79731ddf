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

// Returns the options whose value is the next word.
std::vector<std::string> options_with_value(const Options& options) {
  std::vector<std::string> words;
  for (const Option& option : options) {
    if (option.takes == Takes::Value) std::ranges::copy(spellings(option), std::back_inserter(words));
  }
  return words;
}

// Returns the first sentence of the option's help, for a list of options.
std::string first_sentence(const Option& option) {
  const std::string& text = option.help;
  std::size_t end = 0;
  do {
    end = text.find('.', end + 1);
  } while (end != std::string::npos && end + 1 < text.size() && (text[end + 1] != ' ' || text[end - 1] == '.'));
  return text.substr(0, end);
}

std::string escaped(const std::string& text, const std::string& special) {
  std::string out;
  for (const char c : text) {
    if (special.find(c) != std::string::npos) out += '\\';
    out += c;
  }
  return out;
}

// Returns the text for a shell, between single quotes.
std::string shell_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string replace_all(std::string text, const std::string& what, const std::string& with) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size()) {
    text.replace(at, what.size(), with);
  }
  return text;
}

// ---- bash ----

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

std::string bash_script(const Options& options) {
  std::string values;
  std::vector<std::string> words;
  for (const Option& option : options) {
    values += bash_values(option);
    std::ranges::copy(spellings(option), std::back_inserter(words));
  }
  std::string script = replace_all(kBash, "@values@", values);
  script = replace_all(script, "@take_a_word@", join(options_with_value(options), "|"));
  return replace_all(script, "@options@", join(words, " "));
}

// ---- zsh ----

constexpr char kZsh[] = R"(#compdef @command@
_@command@() {
  _arguments -S -A '-*' \
@options@    '1:program:_@command@_program' \
    '*:argument:_files'
}
_@command@_program() {
  (( CURRENT == 2 )) && compadd -- @commands@
  _files
}
if [[ $funcstack[1] == _@command@ ]]; then
  _@command@ "$@"
else
  compdef _@command@ @command@
fi
)";

std::string zsh_values(const Option& option) {
  switch (values_of(option)) {
    case Values::Words:
      return "(" + join(choices(option), " ") + ")";
    case Values::Files:
      return "_files";
    case Values::Folders:
      return "_files -/";
    case Values::Unknown:
      return " ";
  }
  return " ";
}

// Returns a line for each spelling, such as '(-r --redirects)-r+[Streams to write to files]:STREAMS: '.
std::string zsh_option(const Option& option) {
  std::string after = "[" + escaped(first_sentence(option), "[]:\\") + "]";
  if (option.takes != Takes::Nothing) after += ":" + escaped(option.metavar, ":\\") + ":" + zsh_values(option);
  const std::string excludes = option.letter ? "(" + join(spellings(option), " ") + ")" : "";
  std::string lines;
  for (const std::string& word : spellings(option)) {
    const bool is_long = word.size() > 2;
    const char* how = option.takes == Takes::Nothing           ? ""
                      : option.takes >= Takes::ValueIfAttached ? "=-"
                      : is_long                                ? "="
                                                               : "+";
    lines += "    " + shell_quoted(excludes + word + how + after) + " \\\n";
  }
  return lines;
}

// ---- fish ----

constexpr char kFish[] = R"(function __@command@_before_program
    set -l is_value no
    for word in (commandline -opc)[2..-1]
        if test $is_value = yes
            set is_value no
            continue
        end
        switch (string replace -a _ - -- $word)
            case @take_a_word@
                set is_value yes
            case --
                return 1
            case '-*'
            case '*'
                return 1
        end
    end
    return 0
end
complete -c @command@ -n 'test (count (commandline -opc)) -eq 1' -a '@commands@'
@options@)";

std::string fish_option(const Option& option) {
  std::string line = "complete -c @command@ -n __@command@_before_program -l " + option.name;
  if (option.letter) line += std::string(" -s ") + option.letter;
  const Values values = values_of(option);
  if (option.takes == Takes::Value) line += values == Values::Files || values == Values::Folders ? " -r" : " -x";
  if (values == Values::Folders) line += " -a '(__fish_complete_directories)'";
  if (values == Values::Words) line += " -a '" + join(choices(option), " ") + "'";
  // Within single quotes fish understands \\ and \'.
  return line + " -d '" + escaped(first_sentence(option), "\\'") + "'\n";
}

}  // namespace

std::string completion_script(const Options& options, const std::string& shell, const std::string& command) {
  std::string script;
  if (shell == "bash") {
    script = bash_script(options);
  } else {
    std::string lines;
    for (const Option& option : options) lines += shell == "zsh" ? zsh_option(option) : fish_option(option);
    script = replace_all(shell == "zsh" ? kZsh : kFish, "@options@", lines);
    script = replace_all(script, "@take_a_word@", join(options_with_value(options), " "));
  }
  script = replace_all(script, "@commands@", command == "torchrun" ? "" : kCommandWords);
  return replace_all(script, "@command@", command);
}

}  // namespace ddp::apps
