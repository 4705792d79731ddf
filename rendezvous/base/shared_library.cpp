// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/base/shared_library.hpp"

#include <dlfcn.h>

#include <cstdlib>

#include "rendezvous/base/error.hpp"

namespace ddp::rendezvous {

SharedLibrary::SharedLibrary(const char* what, const std::vector<std::string>& names, const char* advice)
    : what_(what) {
  std::string tried;
  for (const std::string& name : names) {
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) {
      name_ = name;
      return;
    }
    const char* why = dlerror();
    tried += (tried.empty() ? "" : "; ") + std::string(why != nullptr ? why : name.c_str());
  }
  throw Error(ErrorCode::System, what_ + " cannot be opened: " + tried + " (" + advice + ")");
}

void* SharedLibrary::address_or_null(const char* symbol) const { return dlsym(handle_, symbol); }

void* SharedLibrary::address(const char* symbol) const {
  if (void* found = address_or_null(symbol)) return found;
  throw Error(ErrorCode::System, what_ + " " + name_ + " has no " + symbol + ": it is too old");
}

std::vector<std::string> library_names(const char* variable, std::vector<std::string> usual) {
  const char* given = std::getenv(variable);
  if (given == nullptr || *given == '\0') return usual;
  return {given};
}

}  // namespace ddp::rendezvous
