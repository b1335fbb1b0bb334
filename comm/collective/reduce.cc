#include "comm/collective/reduce.h"

#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/check.h"
#include "base/tensor/half.h"

namespace heddle::comm {

namespace {

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
      dtype == DType::kBF16 ? FoldNarrow<FromBF16>(partial.data(), value.data(), elements, op)
                            : FoldNarrow<FromF16>(partial.data(), value.data(), elements, op);
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
  if (to_type == DType::kF32) {
    WidenToF32(from, from_type, to);
    return;
  }
  HEDDLE_CHECK(from_type == DType::kF32, "no conversion from {}", DTypeName(from_type));
  RoundFromF32(from, to, to_type);
}

}  // namespace heddle::comm
