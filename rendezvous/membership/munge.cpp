// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/membership/munge.hpp"

#include <dlfcn.h>

#include <cstdlib>

#include "rendezvous/base/error.hpp"

namespace ddp::rendezvous {
namespace {

template <typename Function>
Function symbol(void* library, const char* name) {
  void* const found = ::dlsym(library, name);
  if (found == nullptr) throw Error(ErrorCode::System, std::string("libmunge.so.2 has no ") + name);
  return reinterpret_cast<Function>(found);
}

}  // namespace

// Declarations from munge.h. A context of null has the defaults; an error of 0 is success.
struct Munge::Library {
  using Encode = int (*)(char** credential, void* context, const void* text, int size);
  using Decode = int (*)(const char* credential, void* context, void** text, int* size, uid_t* user, gid_t* group);
  using ErrorText = const char* (*)(int error);

  Library() {
    void* const library = ::dlopen("libmunge.so.2", RTLD_NOW | RTLD_LOCAL);  // stays open
    if (library == nullptr) {
      const char* const why = ::dlerror();
      throw Error(ErrorCode::System, why != nullptr ? why : "libmunge.so.2 cannot be opened");
    }
    encode = symbol<Encode>(library, "munge_encode");
    decode = symbol<Decode>(library, "munge_decode");
    error_text = symbol<ErrorText>(library, "munge_strerror");
  }
  Encode encode;
  Decode decode;
  ErrorText error_text;
};

Munge::Munge() : library_(std::make_unique<const Library>()) {
  const Decoded own = decode(vouch(""));
  if (!own.error.empty()) throw Error(ErrorCode::System, own.error);
  user_ = own.user;
}

Munge::~Munge() = default;

std::string Munge::vouch(std::string_view text) {
  char* credential = nullptr;
  const int error = library_->encode(&credential, nullptr, text.data(), static_cast<int>(text.size()));
  const std::unique_ptr<char, decltype(&std::free)> owner(credential, &std::free);
  if (error != 0) throw Error(ErrorCode::System, std::string("munged: ") + library_->error_text(error));
  return credential;
}

std::string Munge::why_not(const std::string& credential, std::string_view text) {
  const Decoded decoded = decode(credential);
  if (!decoded.error.empty()) return "MUNGE refuses its credential: " + decoded.error;
  if (decoded.text != text) return "its credential of MUNGE was made for another connection";
  if (decoded.user == user_ || decoded.user == 0) return "";
  return "it is of another user by MUNGE: uid " + std::to_string(decoded.user) + ", this node's is " +
         std::to_string(user_);
}

Munge::Decoded Munge::decode(const std::string& credential) const {
  void* text = nullptr;
  int size = 0;
  gid_t group = 0;
  Decoded decoded;
  // Some errors come with the credential's content.
  const int error = library_->decode(credential.c_str(), nullptr, &text, &size, &decoded.user, &group);
  const std::unique_ptr<void, decltype(&std::free)> owner(text, &std::free);
  if (error != 0) {
    decoded.error = library_->error_text(error);
  } else if (text != nullptr) {
    decoded.text.assign(static_cast<const char*>(text), static_cast<std::size_t>(size));
  }
  return decoded;
}

}  // namespace ddp::rendezvous
