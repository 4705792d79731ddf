// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/config/program.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "launcher/config/run_path.hpp"
#include "rendezvous/base/exit_code.hpp"

namespace ddp::launcher {

namespace {

namespace fs = std::filesystem;
using rendezvous::kCannotExecute;
using rendezvous::kNotFound;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}
bool is_executable_file(const fs::path& path) { return is_file(path) && access(path.c_str(), X_OK) == 0; }

Program python_program(const std::vector<std::string>& arguments, const std::string& what,
                       const ProgramPlaces& places) {
  Program program;
  program.path = find_python(what, places);
  program.prefix = {program.path, "-u"};
  program.prefix.insert(program.prefix.end(), arguments.begin(), arguments.end());
  program.name = what;
  return program;
}

std::string first_bytes(const std::string& path, std::size_t count) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes(count, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(count));
  bytes.resize(static_cast<std::size_t>(file.gcount()));
  return bytes;
}

bool looks_like_text(const std::string& bytes) { return bytes.find('\0') == std::string::npos; }

// Throws if the kernel would refuse to start this executable file, so that the user learns of it before anything is
// started.
void check_format(const std::string& path) {
  const std::string head = first_bytes(path, 256);
  if (head.rfind("\x7f"
                 "ELF",
                 0) == 0)
    return;
  if (head.rfind("#!", 0) == 0) {
    std::istringstream line(head.substr(2, head.find('\n') - 2));
    std::string interpreter;
    line >> interpreter;
    if (!interpreter.empty() && interpreter.back() == '\r') interpreter.pop_back();
    if (is_executable_file(interpreter)) return;
    throw ProgramError(kNotFound, "'" + path + "' asks for the interpreter '" + interpreter +
                                      "' in its first line, which is not there; install it or correct the #! line");
  }
  // Other formats may be registered with binfmt_misc, so the kernel decides. It never starts a text without #!.
  if (looks_like_text(head)) {
    throw ProgramError(kCannotExecute, "'" + path +
                                           "' is a text without a #! line, so the system cannot execute it; "
                                           "add one (for example #!/bin/sh) or name it .py to run it with Python");
  }
}

// The error for a file that the user may not execute.
ProgramError not_executable(const std::string& path, const std::string& what) {
  const bool is_readable = access(path.c_str(), R_OK) == 0;
  return {kCannotExecute, "'" + what + "' " +
                              (is_readable ? "is not executable; chmod +x it"
                                           : "may neither be read nor executed by this user; ask its owner for both")};
}

// Returns what is odd about a name that is not found, as advice at the end of a message; empty: nothing.
std::string oddity_of(const std::string& what) {
  if (what.ends_with('\r')) {
    return "; the name ends with a carriage return: the script that calls ddprun has Windows' line ends (sed -i "
           "'s/\\r$//')";
  }
  for (const char* dash : {"\u2010", "\u2011", "\u2012", "\u2013", "\u2014", "\u2212"}) {
    if (what.starts_with(dash)) return "; if it is an option, write its dash as a hyphen-minus (-)";
  }
  return "";
}

Program direct_program(const std::string& path, const std::string& what) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    throw ProgramError(kCannotExecute, "'" + what + "' is a folder without a __main__.py; give a program");
  }
  if (!is_file(path)) {
    throw ProgramError(kNotFound, "'" + what + "' does not exist; check the path" + oddity_of(what));
  }
  if (!is_executable_file(path)) throw not_executable(path, what);
  check_format(path);
  return {path, {what}, what};
}

bool is_python_file(const std::string& what) {
  const std::string extension = fs::path(what).extension();
  return extension == ".py" || extension == ".pyc" || extension == ".pyz" || extension == ".pyw";
}

bool is_script_for_python(const std::string& path) {
  if (is_file(fs::path(path) / "__main__.py")) return true;
  if (!is_file(path) || access(path.c_str(), X_OK) == 0) return false;
  const std::string head = first_bytes(path, 256);
  return !head.empty() && looks_like_text(head) && head.rfind("#!", 0) != 0;
}

}  // namespace

std::optional<std::string> find_in_path(const std::string& name) {
  const char* path = getenv("PATH");
  std::istringstream folders(path ? path : "/usr/local/bin:/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path candidate = fs::path(folder.empty() ? "." : folder) / name;
    if (is_executable_file(candidate)) return candidate.string();
  }
  return std::nullopt;
}

std::string find_python(const std::string& for_what, const ProgramPlaces& places) {
  if (const char* given = getenv("PYTHON_EXEC"); given && *given) {
    if (std::strchr(given, '/')) {
      if (is_executable_file(given)) return given;
    } else if (auto found = find_in_path(given)) {
      return *found;
    }
    throw ProgramError(kNotFound, std::string("PYTHON_EXEC is '") + given +
                                      "', which is not an executable file; set it to a Python interpreter or unset it");
  }
  if (is_executable_file(places.python)) return places.python;
  if (!places.python.empty()) {
    throw ProgramError(kCannotExecute,
                       "the environment that ddprun was called in has the Python '" + places.python +
                           "', which is missing on this machine or may not be run; make the environment "
                           "here, too, or set PYTHON_EXEC=/path/to/python");
  }
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const char* environment = getenv(variable);
    if (!environment || !*environment) continue;
    const fs::path candidate = fs::path(environment) / "bin" / "python";
    if (is_executable_file(candidate)) return candidate.string();
  }
  for (const char* name : {"python3", "python"}) {
    if (auto found = find_in_path(name)) return *found;
  }
  throw ProgramError(kNotFound, "no Python interpreter for '" + for_what +
                                    "': neither PYTHON_EXEC, an active virtual environment, nor python3 in PATH; "
                                    "install python3 or set PYTHON_EXEC=/path/to/python");
}

Program find_program(const std::string& what, ProgramKind kind, const ProgramPlaces& places) {
  if (kind == ProgramKind::Module) return python_program({"-m", what}, what, places);
  if (kind == ProgramKind::RunPath) return python_program({"-c", kRunPath, what}, what, places);
  if (kind == ProgramKind::Script) return python_program({what}, what, places);
  // A Python script by its name or content.
  if (kind == ProgramKind::Guess) {
    if (is_python_file(what)) {
      if (!is_file(what))
        throw ProgramError(kNotFound, "the script '" + what + "' does not exist; check the path" + oddity_of(what));
      if (access(what.c_str(), R_OK) != 0) {
        throw ProgramError(kCannotExecute, "the script '" + what + "' cannot be read: " + strerror(errno));
      }
      return python_program({what}, what, places);
    }
    if (is_script_for_python(what) || what == "-" || what == "/dev/stdin") return python_program({what}, what, places);
  }
  // An executable: a path, else a name that is looked up.
  if (what.find('/') != std::string::npos) return direct_program(what, what);
  if (is_executable_file(what)) return direct_program("./" + what, what);
  if (auto found = find_in_path(what)) return direct_program(*found, what);
  const std::string beside = (fs::path(places.own_folder) / what).string();
  if (is_executable_file(beside)) return direct_program(beside, what);
  if (is_file(what)) throw not_executable(what, what);
  throw ProgramError(kNotFound, "'" + what + "' was not found: not a file here, not in PATH, not beside ddprun (" +
                                    places.own_folder + ")" + oddity_of(what));
}

}  // namespace ddp::launcher
