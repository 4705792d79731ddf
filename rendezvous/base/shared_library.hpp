// SPDX-License-Identifier: BSD-3-Clause
// A third-party shared library (NCCL, the CUDA driver, libssl), opened at run time where it is installed. It stays open
// until the process ends, since its threads may outlive the code that opened it.
#pragma once

#include <string>
#include <vector>

namespace ddp::rendezvous {

class SharedLibrary {
 public:
  // Opens the first of `names` that can be opened. Throws Error{System} with what was tried, why it failed,
  // and `advice`.
  SharedLibrary(const char* what, const std::vector<std::string>& names, const char* advice);

  // Sets `function` to the symbol. Throws Error{System} if the library lacks it.
  template <typename Function>
  void find(const char* symbol, Function*& function) const {
    function = reinterpret_cast<Function*>(address(symbol));
  }
  // Sets `function` to the symbol, or to null if the library lacks it.
  template <typename Function>
  void find_if_there(const char* symbol, Function*& function) const {
    function = reinterpret_cast<Function*>(address_or_null(symbol));
  }
  const std::string& name() const { return name_; }

 private:
  void* address(const char* symbol) const;
  void* address_or_null(const char* symbol) const;

  std::string what_;
  std::string name_;  // the one of `names` that was opened
  void* handle_ = nullptr;
};

// Returns the file that the environment variable names, alone, so that no other is tried; or `usual` if it is not set.
std::vector<std::string> library_names(const char* variable, std::vector<std::string> usual);

}  // namespace ddp::rendezvous
