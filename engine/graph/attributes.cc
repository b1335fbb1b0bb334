#include "engine/graph/attributes.h"

#include <fmt/format.h>

#include "base/check.h"

namespace heddle::graph {

int64_t Attributes::Int(std::string_view name) const {
  const auto it = values_.find(name);
  HEDDLE_CHECK(it != values_.end(), "no attribute '{}' in {}", name, ToString());
  const auto* value = std::get_if<int64_t>(&it->second);
  HEDDLE_CHECK(value != nullptr, "attribute '{}' is no integer", name);
  return *value;
}

double Attributes::Float(std::string_view name) const {
  const auto it = values_.find(name);
  HEDDLE_CHECK(it != values_.end(), "no attribute '{}' in {}", name, ToString());
  const auto* value = std::get_if<double>(&it->second);
  HEDDLE_CHECK(value != nullptr, "attribute '{}' is no floating-point number", name);
  return *value;
}

std::optional<int64_t> Attributes::FindInt(std::string_view name) const {
  return values_.contains(name) ? std::optional(Int(name)) : std::nullopt;
}

Attributes Attributes::Without(std::initializer_list<std::string_view> names) const {
  Attributes rest = *this;
  for (const std::string_view name : names) {
    if (const auto it = rest.values_.find(name); it != rest.values_.end()) {
      rest.values_.erase(it);
    }
  }
  return rest;
}

std::string Attributes::ToString() const {
  if (values_.empty()) {
    return "";
  }
  std::string text;
  for (const auto& [name, value] : values_) {
    const std::string number =
        std::visit([](const auto& number_value) { return fmt::format("{}", number_value); }, value);
    text += fmt::format("{}{}={}", text.empty() ? "{" : ", ", name, number);
  }
  return text + "}";
}

}  // namespace heddle::graph
