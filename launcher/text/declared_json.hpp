// SPDX-License-Identifier: BSD-3-Clause
// Writes and reads structs as JSON by one declaration of their members, in namespace ddp::launcher itself:
//
//     template <typename Json>
//     void members(Json& json, StackFrame& frame) {
//       json.must("function", frame.function)("file", frame.file).rest("line", frame.line);
//     }
//
// A member that is missing in a text keeps its default, but must() makes the text something else. rest() leaves a
// member out where it has its default. Json::kReads says which of the two is done. Only .cpp files include this.
#pragma once

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "launcher/text/json_text.hpp"
#include "rendezvous/base/shallow_json.hpp"

namespace ddp::launcher {

template <typename T>
std::string json_of(const T& value);

class JsonWriter {
 public:
  static constexpr bool kReads = false;
  template <typename T>
  JsonWriter& operator()(const char* name, const T& value) {
    object_.json(name, json_of(value));
    return *this;
  }
  template <typename T>
  JsonWriter& must(const char* name, const T& value) {
    return (*this)(name, value);
  }
  template <typename T>
  JsonWriter& rest(const char* name, const T& value, const T& otherwise = {}) {
    if constexpr (requires { value.empty(); })
      return value.empty() ? *this : (*this)(name, value);
    else
      return value == otherwise ? *this : (*this)(name, value);
  }
  // A text that is null where it is empty.
  JsonWriter& words(const char* name, const std::string& value) {
    object_.json(name, value.empty() ? "null" : quoted_json(value));
    return *this;
  }
  std::string str() const { return object_.str(); }

 private:
  JsonObject object_;
};

template <typename T>
std::string json_of(const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_integral_v<T>) {
    return std::to_string(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    char text[40];
    snprintf(text, sizeof text, "%.3f", value);
    return text;
  } else if constexpr (std::is_same_v<T, std::string>) {
    return quoted_json(value);
  } else if constexpr (requires { value.has_value(); }) {
    return value ? json_of(*value) : "null";
  } else if constexpr (requires { value.begin(); }) {
    std::string list;
    for (const auto& item : value) list += (list.empty() ? "" : ",") + json_of(item);
    return "[" + list + "]";
  } else {
    JsonWriter writer;
    members(writer, const_cast<T&>(value));  // which a writer leaves as it is
    return writer.str();
  }
}

template <typename T>
void take_json(const nlohmann::json& json, T& value);

class JsonReader {
 public:
  static constexpr bool kReads = true;
  explicit JsonReader(const nlohmann::json& object) : object_(object) {}
  template <typename T>
  JsonReader& operator()(const char* name, T& value) {
    if (object_.contains(name)) take_json(object_.at(name), value);
    return *this;
  }
  template <typename T>
  JsonReader& must(const char* name, T& value) {
    take_json(object_.at(name), value);
    return *this;
  }
  template <typename T>
  JsonReader& rest(const char* name, T& value, const T& = {}) {
    return (*this)(name, value);
  }
  JsonReader& words(const char* name, std::string& value) {
    std::optional<std::string> text;
    (*this)(name, text);
    value = text.value_or("");
    return *this;
  }

 private:
  const nlohmann::json& object_;
};

template <typename T>
void take_json(const nlohmann::json& json, T& value) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    const bool is_unsigned = json.is_number_unsigned();
    const bool fits = is_unsigned ? std::in_range<T>(json.get<std::uint64_t>())
                                  : json.is_number_integer() && std::in_range<T>(json.get<std::int64_t>());
    value = fits ? json.get<T>() : throw std::range_error("no integer of this size");
  } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
    json.get_to(value);
  } else if constexpr (requires { value.has_value(); }) {
    if (!json.is_null()) take_json(json, value.emplace());
  } else if constexpr (requires { value.emplace_back(); }) {
    for (const nlohmann::json& item : json.get_ref<const nlohmann::json::array_t&>()) {
      take_json(item, value.emplace_back());
    }
  } else {
    if (!json.is_object()) throw std::range_error("no object");
    JsonReader reader(json);
    members(reader, value);
  }
}

// Returns what json_of() wrote; nothing if the text is something else.
template <typename T>
std::optional<T> read_json(std::string_view text) {
  try {
    T value;
    take_json(rendezvous::parse_shallow(text), value);
    return value;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  } catch (const std::range_error&) {
    return std::nullopt;
  }
}

}  // namespace ddp::launcher
