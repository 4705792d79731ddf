// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Bytes: what stores keep and collectives on objects carry.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ddp/ddp.h"

namespace ddp {

/// A pointer to arbitrary bytes. Never owns them: what it was made from must live as long.
class Bytes {
 public:
  /// Makes an empty one.
  Bytes() = default;
  /// Points to any memory.
  Bytes(const void* data, std::size_t size) : c_{data, size} {}
  /// Points to a text, without its NUL.
  Bytes(const char* text) : Bytes(text, std::strlen(text)) {}  // NOLINT: a text is bytes
  /// Points to the content of a std::string, std::string_view, std::vector of std::byte, char or std::uint8_t, and the
  /// like.
  template <typename Container, typename Element = std::remove_pointer_t<decltype(std::declval<Container>().data())>,
            typename = std::enable_if_t<sizeof(Element) == 1 && std::is_trivially_copyable_v<Element>>>
  Bytes(const Container& container)  // NOLINT: it has bytes and nothing else
      : Bytes(container.data(), container.size()) {}

  /// Returns the struct of ddp.h.
  ddp_bytes c() const { return c_; }

 private:
  ddp_bytes c_ = {nullptr, 0};
};

namespace detail {

// Collects what a call delivers, one text after the other.
class Texts {
 public:
  ddp_sink sink() { return {this, &take}; }
  std::vector<std::string> all() { return std::move(texts_); }
  std::string one() { return std::move(texts_.at(0)); }

 private:
  static void take(void* context, ddp_bytes value) {
    static_cast<Texts*>(context)->texts_.emplace_back(static_cast<const char*>(value.data), value.size);
  }
  std::vector<std::string> texts_;
};

}  // namespace detail

}  // namespace ddp
