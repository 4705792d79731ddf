// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/tensor_file/json_form.hpp"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

#include "rendezvous/base/check.hpp"

namespace ddp::runtime {

JsonForm::JsonForm(Kind kind) : kind_(kind) {}

JsonForm JsonForm::number(OnNumber take) {
  JsonForm form(Kind::Number);
  form.on_number_ = std::move(take);
  return form;
}

JsonForm JsonForm::text(OnText take) {
  JsonForm form(Kind::Text);
  form.on_text_ = std::move(take);
  return form;
}

JsonForm JsonForm::array(const JsonForm& element, OnElement begin) {
  JsonForm form(Kind::Array);
  form.each_ = {element};
  form.on_element_ = std::move(begin);
  return form;
}

JsonForm JsonForm::object(std::vector<Field> fields) {
  JsonForm form(Kind::Object);
  form.fields_ = std::move(fields);
  return form;
}

JsonForm JsonForm::map(const JsonForm& value, OnName begin, std::vector<Field> special) {
  JsonForm form(Kind::Map);
  form.each_ = {value};
  form.on_name_ = std::move(begin);
  form.fields_ = std::move(special);
  return form;
}

// Receives what nlohmann's parser finds, which itself keeps one bit for each open container.
class JsonFormReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit JsonFormReader(const JsonForm& form) : next_(&form) {}

  bool null() override { return other(); }
  bool boolean(bool /*value*/) override { return other(); }
  bool number_integer(std::int64_t /*negative*/) override { return other(); }
  bool number_float(double /*value*/, const std::string& /*text*/) override { return other(); }
  bool binary(nlohmann::json::binary_t& /*value*/) override { return other(); }

  bool number_unsigned(std::uint64_t value) override {
    const JsonForm* form = begin_value();
    if (form == nullptr) return true;
    if (form->kind_ != JsonForm::Kind::Number || value > JsonForm::kMaxNumber) wrong_kind(*form);
    form->on_number_(value);
    return true;
  }

  bool string(std::string& value) override {
    const JsonForm* form = begin_value();
    if (form == nullptr) return true;
    if (form->kind_ != JsonForm::Kind::Text) wrong_kind(*form);
    form->on_text_(value);
    return true;
  }

  bool start_object(std::size_t /*size*/) override {
    const JsonForm* form = begin_value();
    if (form != nullptr && form->kind_ != JsonForm::Kind::Object && form->kind_ != JsonForm::Kind::Map) {
      wrong_kind(*form);
    }
    return open(form);
  }

  bool key(std::string& name) override {
    Container& in = open_.back();
    in.name = std::move(name);
    next_ = nullptr;
    if (in.form == nullptr) return true;
    const auto& fields = in.form->fields_;
    const auto field =
        std::find_if(fields.begin(), fields.end(), [&](const auto& each) { return each.first == in.name; });
    if (field != fields.end()) {
      const std::uint64_t bit = std::uint64_t{1} << (field - fields.begin());
      if ((in.seen & bit) != 0) throw WrongJson{place() + " is given twice"};
      in.seen |= bit;
      next_ = &field->second;
    } else if (in.form->kind_ == JsonForm::Kind::Map) {
      in.form->on_name_(in.name);
      next_ = &in.form->each_[0];
    }
    return true;
  }

  bool end_object() override {
    const Container ended = std::move(open_.back());
    open_.pop_back();
    if (ended.form == nullptr || ended.form->kind_ != JsonForm::Kind::Object) return true;
    for (std::size_t i = 0; i < ended.form->fields_.size(); ++i) {
      if ((ended.seen >> i & 1) != 0) continue;
      const std::string where = place();
      throw WrongJson{where + (where.empty() ? "" : ".") + ended.form->fields_[i].first + " is missing"};
    }
    return true;
  }

  bool start_array(std::size_t /*size*/) override {
    const JsonForm* form = begin_value();
    if (form != nullptr && form->kind_ != JsonForm::Kind::Array) wrong_kind(*form);
    return open(form);
  }

  bool end_array() override {
    open_.pop_back();
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*last_token*/,
                   const nlohmann::json::exception& /*error*/) override {
    throw WrongJson{"it is no JSON: byte " + std::to_string(position) + " cannot be there"};
  }

 private:
  struct Container {
    const JsonForm* form = nullptr;  // null: it is skipped
    std::uint64_t seen = 0;          // a bit for each of the form's fields
    std::string name = {};           // the field that is being read
  };

  // Returns the form of the value that begins; null if it is skipped.
  const JsonForm* begin_value() {
    if (open_.empty()) return next_;
    const JsonForm* in = open_.back().form;
    if (in == nullptr) return nullptr;
    if (in->kind_ != JsonForm::Kind::Array) return next_;
    if (in->on_element_) in->on_element_();
    return &in->each_[0];
  }

  bool open(const JsonForm* form) {
    if (open_.size() == kMaxJsonDepth) {
      throw WrongJson{"its values are nested more than " + std::to_string(kMaxJsonDepth) + " deep"};
    }
    open_.push_back({form});
    return true;
  }

  bool other() {
    if (const JsonForm* form = begin_value()) wrong_kind(*form);
    return true;
  }

  [[noreturn]] void wrong_kind(const JsonForm& expected) const {
    constexpr const char* kKinds[] = {"a natural number", "a string", "an array", "an object", "an object"};
    const std::string where = place();
    throw WrongJson{(where.empty() ? "it" : where) + " is not " + kKinds[static_cast<std::size_t>(expected.kind_)]};
  }

  // Returns where the reader is: "tensors.w.parts.file". A name in a text of others is cut.
  std::string place() const {
    constexpr std::size_t kShown = 200;
    std::string text;
    for (const Container& each : open_) {
      if (each.name.empty()) continue;
      text += (text.empty() ? "" : ".") + each.name.substr(0, kShown);
    }
    return text;
  }

  const JsonForm* next_;  // the form of the field whose name was read last
  std::vector<Container> open_;
};

void read_json(std::string_view text, const JsonForm& form) {
  JsonFormReader reader(form);
  const bool is_complete = nlohmann::json::sax_parse(text, &reader);
  DDP_CHECK(is_complete, text.size());
}

}  // namespace ddp::runtime
