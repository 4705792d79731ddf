// SPDX-License-Identifier: BSD-3-Clause
// Turns the first word after ddprun's options, WHAT, into a command line, or says why it cannot be run.
//
//     x.py, x.pyc, x.pyz, a folder with __main__.py, a text file without #! that is not executable   python -u WHAT
//     -m pkg.mod                                                                                     python -u -m WHAT
//     --run-path x.py                                                                  python -u -c kRunPath WHAT
//     anything else: the first that exists of a path, ./WHAT, WHAT in PATH, WHAT in ddprun's folder     WHAT
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace ddp::launcher {

struct Program {
  std::string path;                 // what is executed
  std::vector<std::string> prefix;  // argv up to the program's own arguments: {"python3", "-u", "x.py"} or {"train"}
  std::string name;                 // as the user wrote it
};

enum class ProgramKind {
  Guess,    // decided by the rules above
  Script,   // run by Python whatever it is; Python reports what is wrong with it
  Module,   // -m
  RunPath,  // --run-path
  Direct,   // --no-python
};

struct ProgramPlaces {
  std::string own_folder;  // where ddprun itself lies
  std::string python;      // the interpreter of the environment that ddprun was called in; empty: none
};

// The program cannot be run. The exit code is the one that shells use: 127 not found, 126 found but not executable.
class ProgramError : public std::runtime_error {
 public:
  ProgramError(int exit_code, const std::string& message) : std::runtime_error(message), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// Returns the command line. Throws ProgramError; starts nothing.
Program find_program(const std::string& what, ProgramKind kind, const ProgramPlaces& places);

// Returns the Python that the user names, else the one that ddprun was installed for, as torchrun does, else the active
// one. Throws ProgramError if there is none, which names `for_what`.
std::string find_python(const std::string& for_what, const ProgramPlaces& places);

// Returns the first executable file of this name in the folders of PATH.
std::optional<std::string> find_in_path(const std::string& name);

}  // namespace ddp::launcher
