/// \file
/// A node's constants by name; they are ordered, printable and comparable.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace heddle::graph {

class Attributes {
 public:
  using Value = std::variant<int64_t, double>;

  Attributes() = default;
  Attributes(std::initializer_list<std::pair<const std::string, Value>> values) : values_(values) {}

  /// The integer `name`, which must exist with that type; otherwise an invariant is broken.
  int64_t Int(std::string_view name) const;
  /// The number `name`, which must exist with that type; otherwise an invariant is broken.
  double Float(std::string_view name) const;
  /// The integer `name`; nothing when there is no such attribute.
  std::optional<int64_t> FindInt(std::string_view name) const;
  void Set(std::string name, Value value) { values_.insert_or_assign(std::move(name), value); }

  /// These attributes without those of `names`, which need not exist.
  Attributes Without(std::initializer_list<std::string_view> names) const;

  /// The attributes as text, "{epsilon=1e-05, heads=4}"; empty if there are none.
  std::string ToString() const;
  friend bool operator==(const Attributes&, const Attributes&) = default;

 private:
  std::map<std::string, Value, std::less<>> values_;
};

}  // namespace heddle::graph
