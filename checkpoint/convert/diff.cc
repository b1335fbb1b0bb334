#include "checkpoint/convert/diff.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/bytes.h"
#include "checkpoint/convert/cast.h"
#include "checkpoint/convert/model_view.h"
#include "checkpoint/format/layout.h"

namespace heddle::checkpoint {

namespace {

constexpr int64_t kTileElements = int64_t{4} << 20;

using Key = std::pair<std::string, std::string>;  ///< Name and role.

std::map<Key, size_t> ByName(const TensorSource& source) {
  std::map<Key, size_t> tensors;
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    tensors.emplace(Key(source.tensors()[i].name, source.tensors()[i].role), i);
  }
  return tensors;
}

/// One side of a comparison, as numbers.
class Numbers {
 public:
  Numbers(const TensorSource& source, size_t index)
      : source_(source),
        index_(index),
        type_(*source.tensors()[index].dtype) {}

  Status Read(const Box& box) {
    const int64_t count = ElementCount(box.extent);
    bytes_.resize(static_cast<size_t>(count * SizeOf(type_)));
    return source_.Read(index_, box, bytes_);
  }
  const Bytes& bytes() const { return bytes_; }
  DType type() const { return type_; }

  /// The tile's elements as doubles. Integers beyond 2^53 lose digits; bits were compared before.
  Status Convert(std::vector<double>& out) {
    const size_t count = bytes_.size() / static_cast<size_t>(SizeOf(type_));
    out.resize(count);
    if (type_ != DType::kF64 && CanCast(type_, DType::kF32)) {  // Exact.
      floats_.resize(count);
      HEDDLE_RETURN_IF_ERROR(
          Cast(bytes_, type_, std::as_writable_bytes(std::span(floats_)), DType::kF32));
      std::copy(floats_.begin(), floats_.end(), out.begin());
      return Status::Ok();
    }
    for (size_t i = 0; i < count; ++i) {
      out[i] = Element(i);
    }
    return Status::Ok();
  }

 private:
  template <typename T>
  double Get(size_t i) const {
    T value;
    std::memcpy(&value, bytes_.data() + i * sizeof(T), sizeof(T));
    return static_cast<double>(value);
  }
  double Element(size_t i) const {
    switch (type_) {
      case DType::kF64:
        return Get<double>(i);
      case DType::kI32:
        return Get<int32_t>(i);
      case DType::kI64:
        return Get<int64_t>(i);
      default:
        return Get<uint8_t>(i);
    }
  }

  const TensorSource& source_;
  const size_t index_;
  const DType type_;
  Bytes bytes_;
  std::vector<float> floats_;
};

double Distance(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) {
    return 0;
  }
  const double distance = std::fabs(a - b);
  return std::isnan(distance) ? std::numeric_limits<double>::infinity() : distance;
}

Status CompareElements(Numbers& a,
                       Numbers& b,
                       const Shape& shape,
                       ProgressCount& progress,
                       bool& same,
                       TensorDifference& out) {
  const ChunkGrid tiles(shape, ContiguousTile(shape, kTileElements));
  std::vector<double> left;
  std::vector<double> right;
  double sum = 0;
  for (int64_t i = 0; i < tiles.count(); ++i) {
    const Box box = tiles.Clipped(i);
    HEDDLE_RETURN_IF_ERROR(a.Read(box));
    HEDDLE_RETURN_IF_ERROR(b.Read(box));
    progress.Add(static_cast<int64_t>(a.bytes().size() + b.bytes().size()));
    if (a.type() == b.type() && a.bytes() == b.bytes()) {
      continue;
    }
    same = false;
    HEDDLE_RETURN_IF_ERROR(a.Convert(left));
    HEDDLE_RETURN_IF_ERROR(b.Convert(right));
    for (size_t k = 0; k < left.size(); ++k) {
      const double distance = Distance(left[k], right[k]);
      out.max_abs = std::max(out.max_abs, distance);
      sum += distance;
    }
  }
  out.mean_abs = sum / static_cast<double>(ElementCount(shape));
  return Status::Ok();
}

bool Comparable(const FileTensor& left, const FileTensor& right) {
  return left.shape == right.shape && left.dtype && right.dtype;
}

/// Compares one tensor that both have; whether it is the same in both.
Result<bool> Compare(const TensorSource& a,
                     size_t ia,
                     const TensorSource& b,
                     size_t ib,
                     ProgressCount& progress,
                     TensorDifference& out) {
  const FileTensor& left = a.tensors()[ia];
  const FileTensor& right = b.tensors()[ib];
  if (left.shape != right.shape) {
    out.what = fmt::format("shape {} and {}", ToString(left.shape), ToString(right.shape));
    return false;
  }
  if (!Comparable(left, right)) {
    out.what = fmt::format("elements of type {} and {} are not supported", left.type, right.type);
    return false;
  }
  bool same = left.dtype == right.dtype;
  if (!same) {
    out.what = fmt::format("{} and {}", DTypeName(*left.dtype), DTypeName(*right.dtype));
  }
  if (left.bytes > 0) {
    Numbers numbers_a(a, ia);
    Numbers numbers_b(b, ib);
    HEDDLE_RETURN_IF_ERROR(CompareElements(numbers_a, numbers_b, left.shape, progress, same, out));
  }
  return same;
}

Result<ModelDifference> Compare(const TensorSource& a,
                                const TensorSource& b,
                                const Progress& progress) {
  const auto names_a = ByName(a);
  const auto names_b = ByName(b);
  int64_t all = 0;
  for (const auto& [key, index] : names_a) {
    const auto other = names_b.find(key);
    if (other != names_b.end() && Comparable(a.tensors()[index], b.tensors()[other->second])) {
      all += a.tensors()[index].bytes + b.tensors()[other->second].bytes;
    }
  }
  ProgressCount count(progress, all);
  std::map<Key, TensorDifference> differences;
  for (const auto* const names : {&names_a, &names_b}) {
    for (const auto& [key, index] : *names) {
      differences.emplace(key, TensorDifference{.name = key.first, .role = key.second, .what = {}});
    }
  }
  ModelDifference result;
  for (auto& [key, difference] : differences) {
    const auto in_a = names_a.find(key);
    const auto in_b = names_b.find(key);
    if (in_a == names_a.end() || in_b == names_b.end()) {
      difference.what = in_a == names_a.end() ? "only in B" : "only in A";
      difference.equal = false;
    } else {
      HEDDLE_ASSIGN_OR_RETURN(difference.equal,
                              Compare(a, in_a->second, b, in_b->second, count, difference));
    }
    result.equal = result.equal && difference.equal;
    result.tensors.push_back(std::move(difference));
  }
  return result;
}

}  // namespace

Result<ModelDifference> Diff(const std::string& a, const std::string& b, const Progress& progress) {
  HEDDLE_ASSIGN_OR_RETURN(auto left, OpenModel(a));
  HEDDLE_ASSIGN_OR_RETURN(auto right, OpenModel(b));
  if (left->format() == right->format()) {
    return Compare(*left, *right, progress);
  }
  auto view_a = ViewAs(std::move(left), Naming::kHuggingFace);
  HEDDLE_RETURN_IF_ERROR(view_a.status().WithContext("{}", a));
  auto view_b = ViewAs(std::move(right), Naming::kHuggingFace);
  HEDDLE_RETURN_IF_ERROR(view_b.status().WithContext("{}", b));
  return Compare(*view_a->source, *view_b->source, progress);
}

}  // namespace heddle::checkpoint
