/// \file
/// YamlReader: what a value of each type is called, how it is read, and what is said when it is not
/// one.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <type_traits>

#include <fmt/format.h>

#include "base/check.h"
#include "base/system/file.h"
#include "base/utf8.h"
#include "base/yaml/yaml.h"
#include "base/yaml/yaml_tree.h"

namespace heddle {
namespace {

using Kind = YamlNode::Kind;

template <typename T>
constexpr std::string_view NameOf() {
  if constexpr (std::is_same_v<T, bool>) {
    return "true or false";
  } else if constexpr (std::is_integral_v<T>) {
    return "an integer";
  } else if constexpr (std::is_same_v<T, double>) {
    return "a number";
  } else if constexpr (std::is_same_v<T, std::string>) {
    return "a text";
  } else if constexpr (std::is_same_v<T, ByteSize>) {
    return "a size";
  } else if constexpr (std::is_same_v<T, ByteRate>) {
    return "a rate";
  } else {
    static_assert(std::is_same_v<T, Duration>);
    return "a duration";
  }
}

template <typename T>
std::string_view HintOf(std::string_view text) {
  if constexpr (std::is_same_v<T, ByteSize>) {
    return kByteSizeHint;
  } else if constexpr (std::is_same_v<T, ByteRate>) {
    return kByteRateHint;
  } else if constexpr (std::is_same_v<T, Duration>) {
    return kDurationHint;
  } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    return text.starts_with('0') && text.size() > 1 ? "integers are decimal, without leading zeros"
                                                    : "";
  } else if constexpr (std::is_same_v<T, std::string>) {
    return IsUtf8(text) ? "" : "it is not UTF-8, which other processes need";
  } else {
    return "";
  }
}

template <typename T>
std::string Print(const T& value) {
  if constexpr (std::is_same_v<T, ByteSize>) {
    return FormatByteSize(value);
  } else if constexpr (std::is_same_v<T, ByteRate>) {
    return FormatByteRate(value);
  } else if constexpr (std::is_same_v<T, Duration>) {
    return FormatDuration(value);
  } else {
    return fmt::format("{}", value);
  }
}

template <typename T>
std::optional<T> FromResult(const Result<T>& result) {
  return result.ok() ? std::optional<T>(*result) : std::nullopt;
}

/// Reads all of `text` by std::from_chars, decimal only.
template <typename T>
std::optional<T> ParseNumber(std::string_view text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end) {
    return std::nullopt;
  }
  return value;
}

template <typename T>
std::optional<T> ParseScalar(const std::string& text) {
  if constexpr (std::is_same_v<T, bool>) {
    return text == "true"    ? std::optional(true)
           : text == "false" ? std::optional(false)
                             : std::nullopt;
  } else if constexpr (std::is_integral_v<T>) {
    const std::string_view digits = std::string_view(text).substr(text.starts_with('-') ? 1 : 0);
    return digits.size() > 1 && digits.front() == '0' ? std::nullopt : ParseNumber<T>(text);
  } else if constexpr (std::is_same_v<T, double>) {
    const std::optional<double> value = ParseNumber<double>(text);
    return value && std::isfinite(*value) ? value : std::nullopt;
  } else if constexpr (std::is_same_v<T, std::string>) {
    return text.empty() || !IsUtf8(text) ? std::nullopt : std::optional(text);
  } else if constexpr (std::is_same_v<T, ByteSize>) {
    return FromResult(ParseByteSize(text));
  } else if constexpr (std::is_same_v<T, ByteRate>) {
    return FromResult(ParseByteRate(text));
  } else {
    return FromResult(ParseDuration(text));
  }
}

/// "1..100", "at least 1", "above 0 and at most 1"; empty for a range that allows everything.
template <typename T>
std::string PrintRange(const Range<T>& range) {
  if (range.least && range.most) {
    return Print(*range.least) + ".." + Print(*range.most);
  }
  const std::string low = range.least   ? "at least " + Print(*range.least)
                          : range.above ? "above " + Print(*range.above)
                                        : "";
  const std::string high = range.most    ? "at most " + Print(*range.most)
                           : range.below ? "below " + Print(*range.below)
                                         : "";
  return low + (low.empty() || high.empty() ? "" : " and ") + high;
}

template <typename T>
bool InRange(const T& value, const Range<T>& range) {
  return !(range.least && value < *range.least) && !(range.most && *range.most < value) &&
         !(range.above && !(*range.above < value)) && !(range.below && !(value < *range.below));
}

/// Reads one scalar, or notes why not.
template <typename T>
std::optional<T> ReadScalar(YamlState& state,
                            const YamlNode& node,
                            const std::string& path,
                            const Range<T>& range) {
  const auto fail = [&](std::string_view expected, std::string_view hint) {
    state.Note(node.place, path,
               fmt::format("expected {}, got {}", expected, DescribeYamlNode(node)),
               std::string(hint));
    return std::nullopt;
  };
  if (node.kind != Kind::kScalar) {
    return fail(NameOf<T>(), "");
  }
  // A quoted "5" is a text on purpose; so is a quoted "true".
  constexpr bool kNeedsPlain = std::is_arithmetic_v<T>;
  if (kNeedsPlain && node.quoted) {
    return fail(NameOf<T>(), "remove the quotes");
  }
  const std::optional<T> value = ParseScalar<T>(node.scalar);
  if (!value) {
    return fail(NameOf<T>(), HintOf<T>(node.scalar));
  }
  if (!InRange(*value, range)) {
    return fail(PrintRange(range), "");
  }
  return value;
}

}  // namespace

YamlReader::YamlReader(YamlState* state, YamlNode* node, std::string path)
    : state_(state),
      node_(node),
      path_(std::move(path)) {
  if (node_ != nullptr) {
    node_->opened = true;
  }
}

std::string YamlReader::PathOf(std::string_view key) const {
  return JoinYamlPath(path_, key);
}

YamlNode* YamlReader::Find(std::string_view key) {
  if (node_ == nullptr) {
    return nullptr;
  }
  node_->asked.emplace(key);
  YamlNode::Entry* entry = FindEntry(*node_, key);
  return entry == nullptr ? nullptr : &entry->value;
}

YamlNode* YamlReader::FindRequired(std::string_view key, std::string_view expected) {
  YamlNode* node = Find(key);
  if (node == nullptr && node_ != nullptr) {
    const std::pair<std::string, std::string> missing(key, expected);
    if (std::find(node_->missing.begin(), node_->missing.end(), missing) == node_->missing.end()) {
      node_->missing.push_back(missing);
    }
  }
  return node;
}

template <typename T>
T YamlReader::Required(std::string_view key, const Range<T>& range) {
  const YamlNode* node = FindRequired(key, NameOf<T>());
  return node == nullptr ? T{} : ReadScalar(*state_, *node, PathOf(key), range).value_or(T{});
}

template <typename T>
T YamlReader::Optional(std::string_view key, const T& fallback, const Range<T>& range) {
  return Maybe<T>(key, range).value_or(fallback);
}

template <typename T>
std::optional<T> YamlReader::Maybe(std::string_view key, const Range<T>& range) {
  const YamlNode* node = Find(key);
  return node == nullptr ? std::nullopt : ReadScalar(*state_, *node, PathOf(key), range);
}

template <typename T>
std::vector<T> YamlReader::List(std::string_view key, const Range<T>& range) {
  std::vector<T> values;
  const YamlNode* node = Find(key);
  if (node == nullptr) {
    return values;
  }
  if (node->kind != Kind::kList) {
    if (const std::optional<T> value = ReadScalar(*state_, *node, PathOf(key), range)) {
      values.push_back(*value);
    }
    return values;
  }
  for (size_t i = 0; i < node->items.size(); ++i) {
    const std::string path = JoinYamlPath(PathOf(key), std::to_string(i));
    if (const std::optional<T> value = ReadScalar(*state_, node->items[i], path, range)) {
      values.push_back(*value);
    }
  }
  return values;
}

#define HEDDLE_INSTANTIATE(T)                                                        \
  template T YamlReader::Required<T>(std::string_view, const Range<T>&);             \
  template T YamlReader::Optional<T>(std::string_view, const T&, const Range<T>&);   \
  template std::optional<T> YamlReader::Maybe<T>(std::string_view, const Range<T>&); \
  template std::vector<T> YamlReader::List<T>(std::string_view, const Range<T>&);
HEDDLE_INSTANTIATE(bool)
HEDDLE_INSTANTIATE(int32_t)
HEDDLE_INSTANTIATE(int64_t)
HEDDLE_INSTANTIATE(uint64_t)
HEDDLE_INSTANTIATE(double)
HEDDLE_INSTANTIATE(std::string)
HEDDLE_INSTANTIATE(ByteSize)
HEDDLE_INSTANTIATE(ByteRate)
HEDDLE_INSTANTIATE(Duration)
#undef HEDDLE_INSTANTIATE

std::string YamlReader::ReadPath(YamlNode& node, const std::string& path) {
  const std::optional<std::string> written = ReadScalar<std::string>(*state_, node, path, {});
  if (!written) {
    return "";
  }
  if (written->find("://") != std::string::npos) {
    return *written;  // A URL is the same from everywhere.
  }
  // A path on the command line is meant from where the user stands, not from the file's folder.
  const bool from_file = node.place.override_path.empty();
  const std::string resolved =
      from_file ? ResolvePath(FolderOf(state_->filename), *written) : *written;
  if (const Result<std::string> absolute = AbsolutePath(resolved); absolute.ok()) {
    node.absolute_path = *absolute;
    if (const Status text = CheckUtf8("the path to it", *absolute); !text.ok()) {
      state_->Note(node.place, path, std::string(text.message()), "");
    }
  }
  return resolved;
}

std::string YamlReader::RequiredPath(std::string_view key) {
  YamlNode* node = FindRequired(key, "a path");
  return node == nullptr ? "" : ReadPath(*node, PathOf(key));
}

std::string YamlReader::OptionalPath(std::string_view key, const std::string& fallback) {
  YamlNode* node = Find(key);
  return node == nullptr ? fallback : ReadPath(*node, PathOf(key));
}

std::vector<std::string> YamlReader::PathList(std::string_view key) {
  std::vector<std::string> paths;
  YamlNode* node = Find(key);
  if (node == nullptr) {
    return paths;
  }
  if (node->kind != Kind::kList) {
    paths.push_back(ReadPath(*node, PathOf(key)));
    return paths;
  }
  for (size_t i = 0; i < node->items.size(); ++i) {
    paths.push_back(ReadPath(node->items[i], JoinYamlPath(PathOf(key), std::to_string(i))));
  }
  return paths;
}

int YamlReader::ChoiceIndex(std::string_view key,
                            const std::vector<std::string_view>& names,
                            bool required) {
  HEDDLE_CHECK(!names.empty(), "key {} has no choices", key);
  const std::string expected = fmt::format("one of {}", fmt::join(names, ", "));
  const YamlNode* node = required ? FindRequired(key, expected) : Find(key);
  if (node == nullptr) {
    return -1;
  }
  const auto found = std::find(names.begin(), names.end(), node->scalar);
  if (node->kind != Kind::kScalar || found == names.end()) {
    const std::string nearest = node->kind == Kind::kScalar ? NearestName(node->scalar, names) : "";
    state_->Note(node->place, PathOf(key),
                 fmt::format("expected {}, got {}", expected, DescribeYamlNode(*node)),
                 nearest.empty() ? "" : "did you mean '" + nearest + "'?");
    return -1;
  }
  return static_cast<int>(found - names.begin());
}

YamlReader YamlReader::Child(std::string_view key) {
  FindRequired(key, "a mapping");
  return OptionalChild(key);
}

YamlReader YamlReader::OptionalChild(std::string_view key) {
  YamlNode* node = Find(key);
  if (node != nullptr && node->kind != Kind::kMapping) {
    state_->Note(node->place, PathOf(key), "expected a mapping, got " + DescribeYamlNode(*node));
    node = nullptr;
  }
  return YamlReader(state_, node, PathOf(key));
}

std::vector<YamlReader> YamlReader::Children(std::string_view key) {
  std::vector<YamlReader> children;
  YamlNode* node = Find(key);
  if (node == nullptr) {
    return children;
  }
  if (node->kind != Kind::kList) {
    state_->Note(node->place, PathOf(key),
                 "expected a list of mappings, got " + DescribeYamlNode(*node));
    return children;
  }
  for (size_t i = 0; i < node->items.size(); ++i) {
    YamlNode& item = node->items[i];
    const std::string path = JoinYamlPath(PathOf(key), std::to_string(i));
    if (item.kind == Kind::kMapping) {
      children.push_back(YamlReader(state_, &item, path));
    } else {
      state_->Note(item.place, path, "expected a mapping, got " + DescribeYamlNode(item));
    }
  }
  return children;
}

bool YamlReader::Has(std::string_view key) {
  return Find(key) != nullptr;
}

bool YamlReader::IsMapping(std::string_view key) {
  const YamlNode* node = Find(key);
  return node != nullptr && node->kind == Kind::kMapping;
}

void YamlReader::Fail(std::string_view key, const std::string& message, const std::string& hint) {
  YamlPlace place = node_ == nullptr ? state_->root.place : node_->place;
  if (const YamlNode* node = key.empty() ? nullptr : Find(key); node != nullptr) {
    place = node->place;
  }
  state_->Note(place, key.empty() ? path_ : PathOf(key), message, hint);
}

void YamlReader::FailAmong(const std::vector<std::string>& keys,
                           const std::string& message,
                           const std::string& hint) {
  YamlNode& mapping = node_ == nullptr ? state_->root : *node_;
  YamlPlace place = PlaceOf(mapping, keys.front());
  for (const std::string& key : keys) {
    if (const YamlPlace other = PlaceOf(mapping, key); !other.override_path.empty()) {
      place = other;
      break;
    }
  }
  state_->Note(place, "", message, hint);
}

}  // namespace heddle
