#include "checkpoint/formats/safetensors_header.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "checkpoint/format/layout.h"

namespace heddle::checkpoint {

namespace {

using Json = nlohmann::json;

constexpr size_t kMaxName = 4096;
constexpr std::string_view kMetadata = "__metadata__";

struct ElementType {
  std::string_view name;
  int64_t bits;
  std::optional<DType> dtype;
};
/// The element types of the format's library, in its order, by width, which is also the order of
/// the elements in a file that it writes.
constexpr std::array<ElementType, 22> kTypes = {{
    {"BOOL", 8, std::nullopt},
    {"F4", 4, std::nullopt},
    {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt},
    {"U8", 8, DType::kU8},
    {"I8", 8, std::nullopt},
    {"F8_E5M2", 8, std::nullopt},
    {"F8_E4M3", 8, std::nullopt},
    {"F8_E8M0", 8, std::nullopt},
    {"F8_E4M3FNUZ", 8, std::nullopt},
    {"F8_E5M2FNUZ", 8, std::nullopt},
    {"I16", 16, std::nullopt},
    {"U16", 16, std::nullopt},
    {"F16", 16, DType::kF16},
    {"BF16", 16, DType::kBF16},
    {"I32", 32, DType::kI32},
    {"U32", 32, std::nullopt},
    {"F32", 32, DType::kF32},
    {"C64", 64, std::nullopt},
    {"F64", 64, DType::kF64},
    {"I64", 64, DType::kI64},
    {"U64", 64, std::nullopt},
}};

const ElementType* FindType(std::string_view name) {
  const auto* const found = std::find_if(kTypes.begin(), kTypes.end(),
                                         [&](const auto& type) { return type.name == name; });
  return found == kTypes.end() ? nullptr : found;
}

const ElementType* FindType(DType dtype) {
  const auto* const found = std::find_if(kTypes.begin(), kTypes.end(),
                                         [&](const auto& type) { return type.dtype == dtype; });
  return found == kTypes.end() ? nullptr : found;
}

/// Takes a header apart while it is parsed, so that no tree of a hostile header is ever built.
class HeaderHandler : public nlohmann::json_sax<Json> {
 public:
  struct Raw {
    std::string name;
    std::string type;
    Shape shape;
    std::vector<int64_t> offsets;
  };

  std::vector<Raw> tensors;
  std::string problem;

  // NOLINTBEGIN(readability-identifier-naming): the names are the parser's.
  bool null() override { return Fail("null"); }
  bool boolean(bool /*value*/) override { return Fail("true or false"); }
  bool number_integer(number_integer_t /*value*/) override { return Fail("a negative number"); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override {
    return Fail("a number that is not an integer");
  }
  bool binary(binary_t& /*value*/) override { return Fail("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (depth_ != 3 || value > uint64_t{INT64_MAX}) {
      return Fail(depth_ == 3 ? "a number beyond 63 bits" : "a number");
    }
    auto& list = field_ == "shape" ? tensors.back().shape : tensors.back().offsets;
    if (list.size() >= (field_ == "shape" ? kMaxRank : 2)) {
      return Fail("a longer list");
    }
    list.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (depth_ != 2 || (!metadata_ && field_ != "dtype")) {
      return Fail("a text");
    }
    if (!metadata_) {
      tensors.back().type = value.substr(0, 32);
    }
    return true;
  }

  bool start_object(size_t /*elements*/) override {
    if (depth_ > 1) {
      return Fail("an object");
    }
    if (depth_ == 1 && !metadata_) {
      if (tensors.size() == kMaxTensors) {
        problem = fmt::format("more than {} tensors", kMaxTensors);
        return false;
      }
      tensors.push_back({.name = name_, .type = {}, .shape = {}, .offsets = {}});
    }
    seen_ = 0;
    ++depth_;
    return true;
  }
  bool end_object() override {
    if (depth_ == 2 && !metadata_ && seen_ != 7) {
      return Fail("no dtype, shape or data_offsets");
    }
    --depth_;
    return true;
  }
  bool start_array(size_t /*elements*/) override {
    if (depth_ != 2 || metadata_ || (field_ != "shape" && field_ != "data_offsets")) {
      return Fail("a list");
    }
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }

  bool key(string_t& value) override {
    if (depth_ == 1) {
      if (value.size() > kMaxName || value.empty()) {
        problem = fmt::format("a tensor's name has {} bytes", value.size());
        return false;
      }
      metadata_ = value == kMetadata;
      name_ = value;
      field_.clear();
      return true;
    }
    field_ = value;
    if (metadata_) {
      return true;
    }
    const unsigned bit = field_ == "dtype"          ? 1
                         : field_ == "shape"        ? 2
                         : field_ == "data_offsets" ? 4
                                                    : 0;
    if (bit == 0 || (seen_ & bit) != 0) {
      return Fail(bit == 0 ? "an unknown field" : "the field twice");
    }
    seen_ |= bit;
    return true;
  }

  bool parse_error(size_t position,
                   const std::string& /*token*/,
                   const Json::exception& /*error*/) override {
    problem = fmt::format("not JSON at byte {}", position);
    return false;
  }
  // NOLINTEND(readability-identifier-naming)

 private:
  bool Fail(std::string_view what) {
    problem = depth_ == 0 ? fmt::format("{} where an object belongs", what)
                          : fmt::format("tensor '{}'{}: {}", name_,
                                        field_.empty() ? "" : ", " + field_.substr(0, 64), what);
    return false;
  }

  int depth_ = 0;
  bool metadata_ = false;
  unsigned seen_ = 0;  ///< Fields of a tensor seen so far: 1 dtype, 2 shape, 4 data_offsets.
  std::string name_;
  std::string field_;
};

Result<SafetensorsEntry> Check(HeaderHandler::Raw raw) {
  const ElementType* const type = FindType(raw.type);
  if (type == nullptr) {
    return DataLossError("tensor '{}': element type '{}' is not known", raw.name, raw.type);
  }
  const auto count = CheckedElementCount(raw.shape);
  if (!count || *count > (INT64_MAX >> 7) || *count * type->bits % 8 != 0) {
    return DataLossError("tensor '{}': shape {} of {} is too large or no whole bytes", raw.name,
                         ToString(raw.shape), raw.type);
  }
  const int64_t bytes = *count * type->bits / 8;
  if (raw.offsets.size() != 2 || raw.offsets[1] < raw.offsets[0] ||
      raw.offsets[1] - raw.offsets[0] != bytes) {
    return DataLossError("tensor '{}': its offsets do not hold the {} bytes of {} {}", raw.name,
                         bytes, raw.type, ToString(raw.shape));
  }
  return SafetensorsEntry{.tensor = {.name = std::move(raw.name),
                                     .role = {},
                                     .type = std::move(raw.type),
                                     .dtype = type->dtype,
                                     .shape = std::move(raw.shape),
                                     .bytes = bytes,
                                     .stored_bytes = bytes},
                          .begin = raw.offsets[0]};
}

}  // namespace

Result<std::vector<SafetensorsEntry>> ParseSafetensorsHeader(std::string_view json,
                                                             int64_t data_bytes) {
  if (json.empty() || json.front() != '{') {
    return DataLossError("the header does not begin with '{{'");
  }
  HeaderHandler handler;
  if (!Json::sax_parse(json.begin(), json.end(), &handler)) {
    return DataLossError("{}", handler.problem);
  }
  std::vector<SafetensorsEntry> entries;
  entries.reserve(handler.tensors.size());
  for (auto& raw : handler.tensors) {
    HEDDLE_ASSIGN_OR_RETURN(auto entry, Check(std::move(raw)));
    entries.push_back(std::move(entry));
  }
  // A tensor without elements comes before the one that begins at its place.
  std::sort(entries.begin(), entries.end(), [](const auto& left, const auto& right) {
    return std::tie(left.begin, left.tensor.bytes) < std::tie(right.begin, right.tensor.bytes);
  });
  int64_t end = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != end) {
      return DataLossError(
          "tensor '{}' begins at byte {}, {} expected: it overlaps or leaves a hole",
          entry.tensor.name, entry.begin, end);
    }
    end += entry.tensor.bytes;
  }
  if (end != data_bytes) {
    return DataLossError("the tensors take {} bytes, the file has {}: {}", end, data_bytes,
                         end > data_bytes ? "it is cut short" : "something was appended");
  }
  std::vector<std::string_view> names;
  names.reserve(entries.size());
  for (const SafetensorsEntry& entry : entries) {
    names.push_back(entry.tensor.name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    return DataLossError("tensor '{}' comes twice", *twice);
  }
  return entries;
}

Result<SafetensorsLayout> LayOutSafetensors(std::span<const OutputTensor> tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (const OutputTensor& tensor : tensors) {
    if (FindType(tensor.dtype) == nullptr || tensor.name == kMetadata || tensor.name.empty() ||
        tensor.name.size() > kMaxName || !IsUtf8(tensor.name)) {
      return InvalidArgumentError("tensor '{}' ({}) cannot be stored in a safetensors file",
                                  tensor.name, DTypeName(tensor.dtype));
    }
  }
  std::sort(order.begin(), order.end(), [&](size_t left, size_t right) {
    const ElementType* const a = FindType(tensors[left].dtype);
    const ElementType* const b = FindType(tensors[right].dtype);
    return a != b ? a > b : tensors[left].name < tensors[right].name;
  });
  // Text by hand: the library's tree would sort the keys, and order is part of the format.
  SafetensorsLayout layout;
  layout.begin.resize(tensors.size());
  std::string json = R"({"__metadata__":{"format":"pt"})";
  int64_t at = 0;
  std::set<std::string_view> names;
  for (const size_t index : order) {
    const OutputTensor& tensor = tensors[index];
    if (!names.insert(tensor.name).second) {
      return InvalidArgumentError("tensor '{}' comes twice", tensor.name);
    }
    layout.begin[index] = at;
    json += fmt::format(R"(,{}:{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})",
                        Json(tensor.name).dump(-1, ' ', false, Json::error_handler_t::replace),
                        FindType(tensor.dtype)->name, Json(tensor.shape).dump(), at,
                        at + tensor.bytes());
    at += tensor.bytes();
  }
  json += "}";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  const auto length = static_cast<uint64_t>(json.size());
  if (static_cast<int64_t>(length) > kSafetensorsHeaderLimit) {
    return InvalidArgumentError("the header of {} tensors would have {} bytes, more than {}",
                                tensors.size(), length, kSafetensorsHeaderLimit);
  }
  layout.head.resize(sizeof(length));
  std::memcpy(layout.head.data(), &length, sizeof(length));
  layout.head += json;
  for (int64_t& begin : layout.begin) {
    begin += static_cast<int64_t>(layout.head.size());
  }
  layout.file_bytes = at + static_cast<int64_t>(layout.head.size());
  return layout;
}

}  // namespace heddle::checkpoint
