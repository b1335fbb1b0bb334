#include "checkpoint/convert/cast.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/tensor/half.h"

namespace heddle::checkpoint {

namespace {

template <typename T>
T Get(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

/// The nearest float toward zero, its last bit set when digits were cut ("round to odd"): rounded
/// again to a narrower type, it gives what rounding once would give (Boldo and Melquiond, 2008).
float ToOdd(double value) {
  const auto nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || !std::isfinite(nearest)) {
    return nearest;
  }
  const bool beyond = std::fabs(static_cast<double>(nearest)) > std::fabs(value);
  return std::bit_cast<float>((std::bit_cast<uint32_t>(nearest) - (beyond ? 1U : 0U)) | 1U);
}

/// An element as a float on its way to `to`.
float Load(const std::byte* at, DType type, DType to) {
  switch (type) {
    case DType::kBF16:
      return FromBF16(Get<uint16_t>(at));
    case DType::kF16:
      return FromF16(Get<uint16_t>(at));
    case DType::kF64:
      return to == DType::kF32 ? static_cast<float>(Get<double>(at)) : ToOdd(Get<double>(at));
    default:
      return Get<float>(at);
  }
}

void Store(float value, std::byte* at, DType type) {
  if (type == DType::kF64) {
    const double wide = value;
    std::memcpy(at, &wide, sizeof(wide));
    return;
  }
  if (type == DType::kF32) {
    std::memcpy(at, &value, sizeof(value));
    return;
  }
  const uint16_t bits = type == DType::kBF16 ? ToBF16(value) : ToF16(value);
  std::memcpy(at, &bits, sizeof(bits));
}

bool IsFloat(DType type) {
  return type == DType::kF64 || type == DType::kF32 || type == DType::kBF16 || type == DType::kF16;
}

}  // namespace

bool CanCast(DType from, DType to) {
  return from == to || (IsFloat(from) && IsFloat(to));
}

Status Cast(std::span<const std::byte> in, DType from, std::span<std::byte> out, DType to) {
  if (from == to) {
    std::memcpy(out.data(), in.data(), in.size());
    return Status::Ok();
  }
  if (!CanCast(from, to)) {
    return UnimplementedError("{} elements do not become {}", DTypeName(from), DTypeName(to));
  }
  if (to == DType::kF32 && SizeOf(from) == 2) {  // Exact, and by far the most common.
    WidenToF32(in, from, out);
    return Status::Ok();
  }
  const int64_t from_size = SizeOf(from);
  const int64_t to_size = SizeOf(to);
  const int64_t count = static_cast<int64_t>(in.size()) / from_size;
  for (int64_t i = 0; i < count; ++i) {
    const std::byte* const source = in.data() + i * from_size;
    std::byte* const target = out.data() + i * to_size;
    Store(Load(source, from, to), target, to);
    const double value =
        from == DType::kF64 ? Get<double>(source) : Load(source, from, DType::kF32);
    if (std::isfinite(value) && !std::isfinite(Load(target, to, DType::kF32))) {
      return OutOfRangeError("{} is too large for {}", value, DTypeName(to));
    }
  }
  return Status::Ok();
}

}  // namespace heddle::checkpoint
