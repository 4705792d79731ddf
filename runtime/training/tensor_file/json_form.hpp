// SPDX-License-Identifier: BSD-3-Clause
// Reads JSON that anybody may have written. A form says which values are expected where, and what
// is done with each of them; the text is read once, and no value is kept here. So the time is
// linear in the length of the text, and what nobody asked for costs no memory, however deep or long
// it is.
//
//     Shape shape;
//     const JsonForm natural = JsonForm::number([&](std::uint64_t n) { shape.push_back(n); });
//     read_json(text, JsonForm::object({{"shape", JsonForm::array(natural)}}));
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ddp::runtime {

// Why a text is not what was expected: "w.shape is missing". A form's functions may throw it too.
struct WrongJson {
  std::string what;
};

class JsonForm {
 public:
  using Field = std::pair<std::string, JsonForm>;  // its name, and the form of its value
  using OnNumber = std::function<void(std::uint64_t)>;
  using OnText = std::function<void(const std::string&)>;
  using OnName = std::function<void(const std::string&)>;
  using OnElement = std::function<void()>;

  // Numbers may be as large as this, so that two of them can be added up. Values must not be
  // negative, or have a fraction.
  static constexpr std::uint64_t kMaxNumber = INT64_MAX / 2;

  static JsonForm number(OnNumber take);
  static JsonForm text(OnText take);
  // `begin` is called before each element.
  static JsonForm array(const JsonForm& element, OnElement begin = {});
  // Each field must be there, and once. Fields of other names are skipped.
  static JsonForm object(std::vector<Field> fields);
  // Fields may have any names, which must differ; `begin` is called before each value. Those in
  // `special` have a form of their own, and may be missing.
  static JsonForm map(const JsonForm& value, OnName begin, std::vector<Field> special = {});

 private:
  friend class JsonFormReader;
  enum class Kind { Number, Text, Array, Object, Map };

  explicit JsonForm(Kind kind);

  Kind kind_;
  OnNumber on_number_ = {};
  OnText on_text_ = {};
  OnElement on_element_ = {};
  OnName on_name_ = {};
  std::vector<JsonForm> each_ = {};  // the form of an array's or a map's values, one
  std::vector<Field> fields_ = {};   // 64 at most
};

// Containers within containers, from the outermost. What is deeper is refused.
inline constexpr std::size_t kMaxJsonDepth = 32;

// Hands the values of the text to the form's functions, in their order. Throws WrongJson if it is no
// JSON or of another form. Some values have then been handed on.
void read_json(std::string_view text, const JsonForm& form);

}  // namespace ddp::runtime
