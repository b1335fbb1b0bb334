#include "comm/collective/fold.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "comm/collective/reduce.h"

namespace heddle::comm {

namespace {

/// Partial results stay in the first-level cache.
constexpr size_t kTileBytes = size_t{8} << 10;

/// A vector of the widest kind that is everywhere worth it; on a processor without it the compiler
/// splits it. Addition is element by element, so the width does not change bits.
using Floats = float __attribute__((vector_size(32)));
constexpr size_t kStep = 2 * sizeof(Floats);

// kInputs 0: any number. Loads come before stores, so an input may be an output.
template <size_t kInputs, size_t kOutputs>
__attribute__((always_inline)) inline void SumBody(std::span<const std::byte* const> inputs,
                                                   std::span<std::byte* const> outputs,
                                                   size_t bytes) {
  const size_t count = kInputs == 0 ? inputs.size() : kInputs;
  const size_t copies = kOutputs == 0 ? outputs.size() : kOutputs;
  for (size_t at = 0; at < bytes; at += kStep) {
    Floats low;
    Floats high;
    std::memcpy(&low, inputs[0] + at, sizeof(low));
    std::memcpy(&high, inputs[0] + at + sizeof(low), sizeof(high));
    for (size_t i = 1; i < count; ++i) {
      Floats other_low;
      Floats other_high;
      std::memcpy(&other_low, inputs[i] + at, sizeof(other_low));
      std::memcpy(&other_high, inputs[i] + at + sizeof(other_low), sizeof(other_high));
      low += other_low;
      high += other_high;
    }
    for (size_t i = 0; i < copies; ++i) {
      std::memcpy(outputs[i] + at, &low, sizeof(low));
      std::memcpy(outputs[i] + at + sizeof(low), &high, sizeof(high));
    }
  }
}

__attribute__((always_inline)) inline void SumAny(std::span<const std::byte* const> inputs,
                                                  std::span<std::byte* const> outputs,
                                                  size_t bytes) {
  if (inputs.size() == 2 && outputs.size() == 1) {
    SumBody<2, 1>(inputs, outputs, bytes);
  } else if (inputs.size() == 2 && outputs.size() == 2) {
    SumBody<2, 2>(inputs, outputs, bytes);
  } else if (inputs.size() == 4 && outputs.size() == 2) {
    SumBody<4, 2>(inputs, outputs, bytes);
  } else if (inputs.size() == 4 && outputs.size() == 4) {
    SumBody<4, 4>(inputs, outputs, bytes);
  } else {
    SumBody<0, 0>(inputs, outputs, bytes);
  }
}

using Sum = void (*)(std::span<const std::byte* const>, std::span<std::byte* const>, size_t);

void SumPlain(std::span<const std::byte* const> inputs,
              std::span<std::byte* const> outputs,
              size_t bytes) {
  SumAny(inputs, outputs, bytes);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void SumAvx2(std::span<const std::byte* const> inputs,
                                             std::span<std::byte* const> outputs,
                                             size_t bytes) {
  SumAny(inputs, outputs, bytes);
}
Sum ChooseSum() {
  return __builtin_cpu_supports("avx2") != 0 ? SumAvx2 : SumPlain;
}
#else
Sum ChooseSum() {
  return SumPlain;
}
#endif

// One tile of any type and operation.
void FoldTile(std::span<const std::byte* const> inputs,
              std::span<std::byte* const> outputs,
              size_t at,
              size_t bytes,
              DType dtype,
              ReduceOp op) {
  alignas(64) std::array<std::byte, 2 * kTileBytes> partial_room;
  alignas(64) std::array<std::byte, 2 * kTileBytes> widened_room;
  const DType partial_type = PartialType(dtype, op);
  const size_t elements = bytes / static_cast<size_t>(SizeOf(dtype));
  const auto partial =
      std::span(partial_room).first(elements * static_cast<size_t>(SizeOf(partial_type)));
  const auto widened = std::span(widened_room).first(partial.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::span value(inputs[i] + at, bytes);
    if (i == 0) {
      Convert(value, dtype, partial, partial_type);
    } else if (partial_type == dtype) {
      FoldInto(partial, value, dtype, op);
    } else {
      Convert(value, dtype, widened, partial_type);
      FoldInto(partial, widened, partial_type, op);
    }
  }
  Convert(partial, partial_type, std::span(outputs[0] + at, bytes), dtype);
  for (size_t i = 1; i < outputs.size(); ++i) {
    std::memcpy(outputs[i] + at, outputs[0] + at, bytes);
  }
}

}  // namespace

void FoldAll(std::span<const std::byte* const> inputs,
             std::span<std::byte* const> outputs,
             size_t bytes,
             DType dtype,
             ReduceOp op) {
  size_t done = 0;
  if (dtype == DType::kF32 && op == ReduceOp::kSum && bytes >= kStep) {
    static const Sum kSum = ChooseSum();
    done = bytes / kStep * kStep;
    kSum(inputs, outputs, done);
  }
  while (done < bytes) {
    const size_t tile = std::min(kTileBytes, bytes - done);
    FoldTile(inputs, outputs, done, tile, dtype, op);
    done += tile;
  }
}

}  // namespace heddle::comm
