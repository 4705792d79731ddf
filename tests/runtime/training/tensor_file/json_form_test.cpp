// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "runtime/training/tensor_file/json_form.hpp"

using namespace ddp::runtime;
using Catch::Matchers::Contains;

namespace {

std::string why_not(const std::string& text, const JsonForm& form) {
  try {
    read_json(text, form);
  } catch (const WrongJson& wrong) {
    return wrong.what;
  }
  return "";
}

}  // namespace

TEST_CASE("json form: values come in their order, and what has no place in the form is skipped", "[training][unit]") {
  std::vector<std::string> seen;
  const JsonForm number = JsonForm::number([&](std::uint64_t n) { seen.push_back(std::to_string(n)); });
  const JsonForm text = JsonForm::text([&](const std::string& each) { seen.push_back(each); });
  const JsonForm form = JsonForm::object(
      {{"a", JsonForm::array(number, [&] { seen.push_back("next"); })},
       {"b", JsonForm::map(text, [&](const std::string& name) { seen.push_back(name + ":"); }, {{"c", number}})}});
  CHECK(why_not(R"({"x":{"a":[true,{"a":1}]},"a":[1,2],"y":[[null]],"b":{"k":"v","c":7},"z":-1.5})", form).empty());
  CHECK(seen == std::vector<std::string>{"next", "1", "next", "2", "k:", "v", "7"});
}

TEST_CASE("json form: an error says where the reader was and what it expected there", "[training][unit]") {
  const JsonForm number = JsonForm::number([](std::uint64_t) {});
  const JsonForm form = JsonForm::object({{"a", JsonForm::map(JsonForm::array(number), [](const std::string&) {})}});
  const auto [text, why] = GENERATE(table<std::string, std::string>({
      {"{}", "a is missing"},
      {"[]", "it is not an object"},
      {"7", "it is not an object"},
      {"", "it is no JSON"},
      {R"({"a":{"k":[1]}} {})", "it is no JSON: byte 17"},
      {R"({"a":{"k":[1]},"a":{}})", "a is given twice"},
      {R"({"a":{"k":1}})", "a.k is not an array"},
      {R"({"a":{"k":["1"]}})", "a.k is not a natural number"},
      {R"({"a":{"k":[-1]}})", "a.k is not a natural number"},
      {R"({"a":{"k":[1.0]}})", "a.k is not a natural number"},
      {R"({"a":{"k":[1e999]}})", "it is no JSON"},
      {R"({"a":{"k":[99999999999999999999]}})", "a.k is not a natural number"},
      {R"({"a":{"k":[9223372036854775807]}})", "a.k is not a natural number"},
      {R"({"a":{"k":[null]}})", "a.k is not a natural number"},
      {R"({"a":{"k":[[]]}})", "a.k is not a natural number"},
      {"{\"a\":{\"\xff\":[1]}}", "it is no JSON"},
  }));
  INFO(text);
  CHECK_THAT(why_not(text, form), Contains(why));
}

TEST_CASE("json form: what is nested more than 32 deep is refused, also where it is skipped", "[training][unit]") {
  const JsonForm nothing = JsonForm::object({});
  const auto nested = [](std::size_t depth) {
    return "{\"x\":" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
  };
  CHECK(why_not(nested(kMaxJsonDepth), nothing).empty());
  CHECK(why_not(nested(kMaxJsonDepth + 1), nothing) == "its values are nested more than 32 deep");
  CHECK(why_not(std::string(8 << 20, '['), nothing) == "it is not an object");
  CHECK(why_not("{\"x\":" + std::string(8 << 20, '['), nothing) == "its values are nested more than 32 deep");
}
