#include "comm/reduce.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/check.h"

namespace heddle::comm {

namespace {

float FromBFloat16(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

uint16_t ToBFloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) {
    return static_cast<uint16_t>((bits >> 16) | 0x40U);
  }
  return static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

float FromHalf(uint16_t value) {
  const uint32_t sign = static_cast<uint32_t>(value & 0x8000U) << 16;
  const uint32_t exponent = (value >> 10) & 0x1FU;
  const uint32_t mantissa = value & 0x3FFU;
  if (exponent == 0) {  // Zero or subnormal: mantissa times 2^-24, which fp32 holds exactly.
    const float magnitude = static_cast<float>(mantissa) * 0x1.0p-24F;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  const uint32_t rebased = exponent == 31 ? 255U : exponent + 112U;
  return std::bit_cast<float>(sign | (rebased << 23) | (mantissa << 13));
}

uint16_t ToHalf(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000U);
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {
    return static_cast<uint16_t>(sign | 0x7E00U);
  }
  if (magnitude >= 0x477FF000U) {  // 65520 and above round to infinity.
    return static_cast<uint16_t>(sign | 0x7C00U);
  }
  if (magnitude <
      0x38800000U) {  // Below 2^-14: the unit is 2^-24; adding 0.5 rounds to even there.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000U));
  }
  const uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13) & 1U);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
}

template <typename T>
T Load(const std::byte* at) {
  T value{};
  std::memcpy(&value, at, sizeof(T));
  return value;
}

template <typename T>
void Store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(T));
}

// partial[i] = fold(partial[i], value[i]). Without branches, so that compilers use vectors.
template <typename T, typename Fold>
void FoldEach(std::byte* partial, const std::byte* value, size_t elements, Fold fold) {
  for (size_t i = 0; i < elements; ++i) {
    const T a = Load<T>(partial + i * sizeof(T));
    const T b = Load<T>(value + i * sizeof(T));
    Store(partial + i * sizeof(T), fold(a, b));
  }
}

template <typename T>
void FoldTyped(std::byte* partial, const std::byte* value, size_t elements, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      FoldEach<T>(partial, value, elements, [](T a, T b) {
        if constexpr (std::is_integral_v<T>) {  // Wraps, as unsigned arithmetic does.
          return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
        } else {
          return a + b;
        }
      });
      break;
    case ReduceOp::kMax:  // Only a NaN differs from itself.
      FoldEach<T>(partial, value, elements, [](T a, T b) { return b > a || b != b ? b : a; });
      break;
    case ReduceOp::kMin:
      FoldEach<T>(partial, value, elements, [](T a, T b) { return b < a || b != b ? b : a; });
      break;
  }
}

// Max and min of 16-bit floats pick one of the two, so nothing is rounded.
template <float (*kWiden)(uint16_t)>
void FoldNarrow(std::byte* partial, const std::byte* value, size_t elements, ReduceOp op) {
  const auto fold = [op](uint16_t narrow_a, uint16_t narrow_b) {
    const float a = kWiden(narrow_a);
    const float b = kWiden(narrow_b);
    const bool wins = op == ReduceOp::kMax ? b > a : b < a;
    return wins || std::isnan(b) ? narrow_b : narrow_a;
  };
  FoldEach<uint16_t>(partial, value, elements, fold);
}

template <float (*kWiden)(uint16_t)>
void Widen(const std::byte* from, size_t elements, std::byte* to) {
  for (size_t i = 0; i < elements; ++i) {
    Store(to + 4 * i, kWiden(Load<uint16_t>(from + 2 * i)));
  }
}

template <uint16_t (*kNarrow)(float)>
void Narrow(const std::byte* from, size_t elements, std::byte* to) {
  for (size_t i = 0; i < elements; ++i) {
    Store(to + 2 * i, kNarrow(Load<float>(from + 4 * i)));
  }
}

}  // namespace

DType PartialType(DType dtype, ReduceOp op) {
  const bool narrow = dtype == DType::kBF16 || dtype == DType::kF16;
  return narrow && op == ReduceOp::kSum ? DType::kF32 : dtype;
}

void FoldInto(std::span<std::byte> partial,
              std::span<const std::byte> value,
              DType dtype,
              ReduceOp op) {
  const size_t elements = partial.size() / static_cast<size_t>(SizeOf(dtype));
  switch (dtype) {
    case DType::kF32:
      FoldTyped<float>(partial.data(), value.data(), elements, op);
      break;
    case DType::kF64:
      FoldTyped<double>(partial.data(), value.data(), elements, op);
      break;
    case DType::kI32:
      FoldTyped<int32_t>(partial.data(), value.data(), elements, op);
      break;
    case DType::kI64:
      FoldTyped<int64_t>(partial.data(), value.data(), elements, op);
      break;
    case DType::kU8:
      FoldTyped<uint8_t>(partial.data(), value.data(), elements, op);
      break;
    case DType::kBF16:
    case DType::kF16:
      HEDDLE_CHECK(op != ReduceOp::kSum, "16-bit sums are folded in fp32");
      dtype == DType::kBF16 ? FoldNarrow<FromBFloat16>(partial.data(), value.data(), elements, op)
                            : FoldNarrow<FromHalf>(partial.data(), value.data(), elements, op);
      break;
  }
}

void Convert(std::span<const std::byte> from,
             DType from_type,
             std::span<std::byte> to,
             DType to_type) {
  if (from_type == to_type) {
    if (!from.empty()) {
      std::memmove(to.data(), from.data(), from.size());
    }
    return;
  }
  const size_t elements = from.size() / static_cast<size_t>(SizeOf(from_type));
  if (to_type == DType::kF32) {
    from_type == DType::kBF16 ? Widen<FromBFloat16>(from.data(), elements, to.data())
                              : Widen<FromHalf>(from.data(), elements, to.data());
    return;
  }
  HEDDLE_CHECK(from_type == DType::kF32, "no conversion from {}", DTypeName(from_type));
  to_type == DType::kBF16 ? Narrow<ToBFloat16>(from.data(), elements, to.data())
                          : Narrow<ToHalf>(from.data(), elements, to.data());
}

}  // namespace heddle::comm
