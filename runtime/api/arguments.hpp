// SPDX-License-Identifier: BSD-3-Clause
// Reads what the callers of C functions give, pointers and option structs, and keeps exceptions inside. libddp_training
// includes this header, too: the header depends on nothing but ddp/ddp.h, and throws std::invalid_argument.
//
// An option struct begins with its size and may grow: a program that was compiled with another version of ddp.h gives
// fewer or more bytes than this library knows. A new field must lie beyond sizeof the old struct, never in padding at
// its end: an older program need not have zeros there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "ddp/ddp.h"

namespace ddp::runtime {

// Calls the body of an exported function, which no exception may leave: keeps the exception's text for
// ddp_error_last(). `status_of` gives the status of an Error.
template <typename Error, typename StatusOf, typename Body>
ddp_status guard_from(const StatusOf& status_of, Body&& body) noexcept {
  try {
    body();
    return DDP_OK;
  } catch (const Error& e) {
    return ddp_error_set(status_of(e), e.what());
  } catch (const std::invalid_argument& e) {  // from the functions below
    return ddp_error_set(DDP_INVALID_ARGUMENT, e.what());
  } catch (const std::bad_alloc&) {
    return ddp_error_set(DDP_SYSTEM, "out of memory");
  } catch (const std::exception& e) {
    return ddp_error_set(DDP_SYSTEM, e.what());
  } catch (...) {
    return ddp_error_set(DDP_SYSTEM, "an error of an unknown kind");
  }
}

template <typename T>
T& not_null(T* pointer, const char* what) {
  if (pointer != nullptr) return *pointer;
  throw std::invalid_argument(std::string(what) + " is null");
}

// Name of an option struct, and its layout in 0.1.0.
struct FirstLayout {
  const char* name;
  std::size_t bytes;  // up to the end of the last field it had then
};

// Copies the caller's struct over `ours`, which holds zeros; fields that the caller's version lacks stay zero.
inline void read_options(void* ours, std::size_t known, const void* given, const FirstLayout& first) {
  constexpr std::size_t kLargest = 4096;  // far above any version's; a larger number is an uninitialised field
  std::size_t size = 0;
  std::memcpy(&size, given, sizeof size);
  const auto refuse = [&](const std::string& why) {
    throw std::invalid_argument(std::string(first.name) + ": " + why);
  };
  if (size == 0) size = first.bytes;
  if (size < first.bytes || size > kLargest) {
    refuse("its size is " + std::to_string(size) + " bytes, but no version of it has that: begin with " +
           "DDP_..._INIT, or with all zeros");
  }
  const auto* bytes = static_cast<const unsigned char*>(given);
  const bool rest_is_zero = size <= known || std::all_of(bytes + known, bytes + size, [](int b) { return b == 0; });
  if (!rest_is_zero) {
    refuse("a field behind its first " + std::to_string(known) + " bytes is set, which this libddp, version " +
           ddp_version() + ", does not know: leave it 0, or use a libddp as new as the program's ddp.h");
  }
  std::memcpy(ours, given, std::min(size, known));
}

// Returns what the caller gave, or all zeros for a null pointer.
template <typename Options>
Options options_or_zeros(const Options* given, const FirstLayout& first) {
  Options options = {};
  if (given != nullptr) read_options(&options, sizeof options, given, first);
  return options;
}

}  // namespace ddp::runtime

// Calls options_or_zeros() for a struct, given the last field that it had in 0.1.0.
#define DDP_OPTIONS(type, last_field, given) \
  ::ddp::runtime::options_or_zeros<type>(    \
      given, {#type, offsetof(type, last_field) + sizeof(std::declval<const type&>().last_field)})
