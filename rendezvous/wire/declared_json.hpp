// SPDX-License-Identifier: BSD-3-Clause
// Writes and reads structs as JSON by one declaration of their members, in the namespace of the struct:
//
//     template <typename Json>
//     void members(Json& json, StackFrame& frame) {
//       json.must("function", frame.function)("file", frame.file).rest("line", frame.line);
//     }
//
// A member that is missing in a text keeps its default, but must() makes the text something else. rest() leaves a
// member out where it has its default. A number that does not fit its member makes the text something else, too.
// Json::kReads says which of the two is done. Only .cpp files include this.
#pragma once

#include <cstdint>
#include <cstdio>
#include <exception>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "rendezvous/base/shallow_json.hpp"
#include "rendezvous/wire/json_text.hpp"

namespace ddp::rendezvous {

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
  // One of an enumeration's values, which count from 0, as its word.
  template <typename Enum>
  JsonWriter& word(const char* name, const Enum& value, std::initializer_list<const char*> words) {
    return (*this)(name, std::string(words.begin()[static_cast<std::size_t>(value)]));
  }
  // A number that must() be there, and from `low` to `high`.
  template <typename T>
  JsonWriter& within(const char* name, const T& value, std::int64_t, std::int64_t) {
    return (*this)(name, value);
  }
  // Any bytes but NUL: each becomes the character of its number.
  JsonWriter& bytes(const char* name, const std::string& value) { return (*this)(name, as_characters(value)); }
  JsonWriter& bytes(const char* name, std::vector<std::string> values) {
    for (std::string& value : values) value = as_characters(value);
    return (*this)(name, values);
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
  } else if constexpr (requires { value.time_since_epoch(); }) {
    return json_of(value.time_since_epoch());
  } else if constexpr (requires { typename T::period; }) {
    return json_of(value.count());
  } else if constexpr (requires { value.has_value(); }) {
    return value ? json_of(*value) : "null";
  } else if constexpr (requires { typename T::mapped_type; }) {
    JsonObject object;
    for (const auto& [name, item] : value) object.json(name, json_of(item));
    return object.str();
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
    if (!object_.contains(name)) return *this;
    try {
      take_json(object_.at(name), value);
    } catch (const std::exception& error) {
      throw std::range_error(std::string(name) + ": " + error.what());
    }
    return *this;
  }
  template <typename T>
  JsonReader& must(const char* name, T& value) {
    if (!object_.contains(name)) throw std::range_error(std::string(name) + " is missing");
    return (*this)(name, value);
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
  template <typename Enum>
  JsonReader& word(const char* name, Enum& value, std::initializer_list<const char*> words) {
    std::string said;
    must(name, said);
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (said == words.begin()[i]) return value = static_cast<Enum>(i), *this;
    }
    throw std::range_error(std::string(name) + " is a word that is not known");
  }
  template <typename T>
  JsonReader& within(const char* name, T& value, std::int64_t low, std::int64_t high) {
    std::int64_t number = 0;
    must(name, number);
    if (number >= low && number <= high) return value = static_cast<T>(number), *this;
    throw std::range_error(std::string(name) + " is " + std::to_string(number) + ", and not from " +
                           std::to_string(low) + " to " + std::to_string(high));
  }
  JsonReader& bytes(const char* name, std::string& value) {
    (*this)(name, value);
    value = from_characters(value);
    return *this;
  }
  JsonReader& bytes(const char* name, std::vector<std::string>& values) {
    (*this)(name, values);
    for (std::string& value : values) value = from_characters(value);
    return *this;
  }

 private:
  const nlohmann::json& object_;
};

template <typename T>
void take_json(const nlohmann::json& json, T& value) {
  if (json.is_discarded()) throw std::range_error("no JSON, or nested too deeply");
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    const bool is_unsigned = json.is_number_unsigned();
    const bool fits = is_unsigned ? std::in_range<T>(json.get<std::uint64_t>())
                                  : json.is_number_integer() && std::in_range<T>(json.get<std::int64_t>());
    value = fits ? json.get<T>() : throw std::range_error("no integer of this size");
  } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
    json.get_to(value);
  } else if constexpr (requires { value.time_since_epoch(); }) {
    typename T::duration since{};
    take_json(json, since);
    value = T(since);
  } else if constexpr (requires { typename T::period; }) {
    typename T::rep count{};
    take_json(json, count);
    value = T(count);
  } else if constexpr (requires { value.has_value(); }) {
    if (!json.is_null()) take_json(json, value.emplace());
  } else if constexpr (requires { typename T::mapped_type; }) {
    for (const auto& [name, item] : json.get_ref<const nlohmann::json::object_t&>()) take_json(item, value[name]);
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
    take_json(parse_shallow(text), value);
    return value;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace ddp::rendezvous
