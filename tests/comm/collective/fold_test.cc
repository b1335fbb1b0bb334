// Folding any number of inputs into any number of outputs at once, against folding them one after
// the other, around the sizes at which it changes its step.
#include "comm/collective/fold.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/random.h"
#include "comm/collective/reduce.h"
#include "tests/support/seed.h"

namespace heddle::comm {
namespace {

constexpr size_t kGuard = 128;
constexpr std::byte kUntouched{0x5A};

/// Numbers of the type, none of them a NaN.
Bytes Values(Random& random, size_t bytes, DType dtype) {
  Bytes values(bytes);
  const auto element = static_cast<size_t>(SizeOf(dtype));
  for (size_t at = 0; at < bytes; at += element) {
    const auto small = static_cast<float>(random.Between(-1000, 1000)) / 8;
    const auto f64 = static_cast<double>(small);
    if (dtype == DType::kF32) {
      std::memcpy(values.data() + at, &small, element);
    } else if (dtype == DType::kF64) {
      std::memcpy(values.data() + at, &f64, element);
    } else if (dtype == DType::kBF16 || dtype == DType::kF16) {
      Convert(std::as_bytes(std::span(&small, 1)), DType::kF32,
              std::span(values).subspan(at, element), dtype);
    } else {
      for (size_t i = 0; i < element; ++i) {
        values[at + i] = static_cast<std::byte>(random.Below(256));
      }
    }
  }
  return values;
}

Bytes OneByOne(const std::vector<Bytes>& inputs, DType dtype, ReduceOp op) {
  const DType wide = PartialType(dtype, op);
  const size_t bytes =
      inputs[0].size() / static_cast<size_t>(SizeOf(dtype)) * static_cast<size_t>(SizeOf(wide));
  Bytes partial(bytes);
  Convert(inputs[0], dtype, partial, wide);
  for (size_t i = 1; i < inputs.size(); ++i) {
    Bytes value(bytes);
    Convert(inputs[i], dtype, value, wide);
    FoldInto(partial, value, wide, op);
  }
  Bytes result(inputs[0].size());
  Convert(partial, wide, result, dtype);
  return result;
}

void ExpectFolds(
    Random& random, size_t inputs, size_t outputs, size_t elements, DType dtype, ReduceOp op) {
  const size_t bytes = elements * static_cast<size_t>(SizeOf(dtype));
  std::vector<Bytes> values;
  std::vector<const std::byte*> from;
  for (size_t i = 0; i < inputs; ++i) {
    values.push_back(Values(random, bytes, dtype));
  }
  for (const Bytes& value : values) {
    from.push_back(value.data());
  }
  const Bytes expected = OneByOne(values, dtype, op);
  std::vector<Bytes> targets(outputs, Bytes(bytes + kGuard, kUntouched));
  std::vector<std::byte*> to;
  for (Bytes& target : targets) {
    to.push_back(target.data());
  }
  FoldAll(from, to, bytes, dtype, op);
  for (const Bytes& target : targets) {
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), target.begin()))
        << inputs << " to " << outputs << ", " << elements << " of " << DTypeName(dtype);
    ASSERT_TRUE(std::all_of(target.begin() + static_cast<ptrdiff_t>(bytes), target.end(),
                            [](std::byte byte) { return byte == kUntouched; }))
        << "behind the end";
  }
}

TEST(FoldAllTest, ManyAtOnceGiveTheBitsOfOneAfterTheOther) {
  Random random(testing::TestSeed());
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64, DType::kI32,
                            DType::kI64, DType::kU8}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
      for (const size_t inputs : {1U, 2U, 4U, 5U}) {
        for (const size_t outputs : {1U, 2U, 4U}) {
          for (const size_t elements : {0U, 1U, 15U, 16U, 17U, 2049U, 4100U}) {
            ExpectFolds(random, inputs, outputs, elements, dtype, op);
          }
        }
      }
    }
  }
}

// Members fold where their values lie.
TEST(FoldAllTest, AnInputMayBeAnOutput) {
  Random random(testing::TestSeed());
  for (const size_t members : {2U, 3U, 4U}) {
    for (const size_t elements : {7U, 16U, 5000U}) {
      std::vector<Bytes> values;
      std::vector<const std::byte*> from;
      std::vector<std::byte*> to;
      for (size_t i = 0; i < members; ++i) {
        values.push_back(Values(random, elements * 4, DType::kF32));
      }
      const Bytes expected = OneByOne(values, DType::kF32, ReduceOp::kSum);
      for (Bytes& value : values) {
        from.push_back(value.data());
        to.push_back(value.data());
      }
      FoldAll(from, to, elements * 4, DType::kF32, ReduceOp::kSum);
      for (const Bytes& value : values) {
        EXPECT_EQ(value, expected) << members << " " << elements;
      }
    }
  }
}

}  // namespace
}  // namespace heddle::comm
