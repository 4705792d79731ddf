// SPDX-License-Identifier: BSD-3-Clause
// PMIx, of which there is no wire protocol to rely on: libpmix is opened. The declarations are those of pmix.h, whose
// interface has been stable since PMIx 2.
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>

#include "rendezvous/base/error.hpp"
#include "rendezvous/process_manager/clients.hpp"

namespace ddp::rendezvous {
namespace {

struct Process {
  char name_space[256];
  std::uint32_t rank;
};

struct Value {
  std::uint16_t type;
  union {
    const char* text;
    unsigned char room[248];  // the library's own union is smaller
  } data;
};

constexpr std::uint16_t kString = 3;
constexpr std::uint8_t kGlobal = 3;

class Library {
 public:
  Library() {
    // An MPI of its own brings libpmix.so.2 too, where LD_LIBRARY_PATH leads to it; Debian's is in no folder that the
    // loader searches.
    for (const char* name : {"libpmix.so.2", "/usr/lib/x86_64-linux-gnu/pmix2/lib/libpmix.so.2",
                             "/usr/lib/aarch64-linux-gnu/pmix2/lib/libpmix.so.2"}) {
      if ((library_ = ::dlopen(name, RTLD_NOW | RTLD_LOCAL)) != nullptr) break;
    }
    if (library_ == nullptr) throw Error(ErrorCode::System, "libpmix.so.2 cannot be opened");
  }

  template <typename... Arguments>
  int call(const char* name, Arguments... arguments) {
    using Function = int (*)(Arguments...);
    auto* const function = reinterpret_cast<Function>(::dlsym(library_, name));
    if (function == nullptr) throw Error(ErrorCode::System, std::string("libpmix.so.2 has no ") + name);
    const int code = function(arguments...);
    if (code == 0) return code;
    throw Error(ErrorCode::System, std::string(name) + " failed with " + std::to_string(code));
  }

 private:
  void* library_ = nullptr;  // stays open
};

using Info = void*;

}  // namespace

std::string exchange_by_pmix(int rank, const std::string& text) {
  // Without a server of its own it would make a job of this process alone.
  if (getenv("PMIX_NAMESPACE") == nullptr) throw Error(ErrorCode::System, "PMIX_NAMESPACE is not set");
  Library pmix;
  Process own = {};
  pmix.call<Process*, Info, std::size_t>("PMIx_Init", &own, nullptr, 0);
  if (rank == 0) {
    Value value = {};
    value.type = kString;
    value.data.text = text.c_str();
    pmix.call<std::uint8_t, const char*, Value*>("PMIx_Put", kGlobal, kExchangeKey, &value);
    pmix.call<>("PMIx_Commit");
  }
  pmix.call<const Process*, std::size_t, Info, std::size_t>("PMIx_Fence", nullptr, 0, nullptr, 0);
  Process first = own;
  first.rank = 0;
  Value* found = nullptr;
  pmix.call<const Process*, const char*, Info, std::size_t, Value**>("PMIx_Get", &first, kExchangeKey, nullptr, 0,
                                                                     &found);
  if (found == nullptr || found->type != kString) throw Error(ErrorCode::System, "PMIx_Get found no text");
  std::string result = found->data.text;
  // All have what they asked for before the first one leaves.
  pmix.call<const Process*, std::size_t, Info, std::size_t>("PMIx_Fence", nullptr, 0, nullptr, 0);
  pmix.call<Info, std::size_t>("PMIx_Finalize", nullptr, 0);
  return result;
}

}  // namespace ddp::rendezvous
