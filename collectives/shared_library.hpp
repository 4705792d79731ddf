// SPDX-License-Identifier: BSD-3-Clause
// A shared library of somebody else's that is opened at run time if it is there. It stays open until the process ends:
// its threads may outlive whoever asked for it.
#pragma once

#include <string>
#include <vector>

namespace ddp::collectives {

class SharedLibrary {
 public:
  // Opens the first of `names` that is there. A name of one alone, from the environment, is meant: no other is tried.
  // Throws rendezvous::Error{System}: what was tried, why it failed, and `advice`.
  SharedLibrary(const char* what, const std::vector<std::string>& names, const char* advice);

  // Fills `function`; throws rendezvous::Error{System} if the library has no such symbol.
  template <typename Function>
  void find(const char* symbol, Function*& function) const {
    function = reinterpret_cast<Function*>(address(symbol));
  }
  // Null if there is none.
  template <typename Function>
  void find_if_there(const char* symbol, Function*& function) const {
    function = reinterpret_cast<Function*>(address_or_null(symbol));
  }
  const std::string& name() const { return name_; }

 private:
  void* address(const char* symbol) const;
  void* address_or_null(const char* symbol) const;

  std::string what_;
  std::string name_;  // that it was opened by
  void* handle_ = nullptr;
};

// What the environment variable names, alone; else `usual`.
std::vector<std::string> library_names(const char* variable, std::vector<std::string> usual);

}  // namespace ddp::collectives
