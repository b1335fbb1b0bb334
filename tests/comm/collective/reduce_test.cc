/// \file
/// Folding two members' values, element by element against arithmetic written out, for every type.
#include "comm/collective/reduce.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/tensor/half.h"

namespace heddle::comm {
namespace {

template <typename T>
T FoldOne(DType dtype, ReduceOp op, T partial, T value) {
  FoldInto(std::as_writable_bytes(std::span(&partial, 1)), std::as_bytes(std::span(&value, 1)),
           dtype, op);
  return partial;
}

template <typename T>
void ExpectFolds(DType dtype, const std::vector<T>& values) {
  for (const T a : values) {
    for (const T b : values) {
      const T larger = a > b ? a : b;
      const T smaller = a < b ? a : b;
      EXPECT_EQ(FoldOne(dtype, ReduceOp::kMax, a, b), larger);
      EXPECT_EQ(FoldOne(dtype, ReduceOp::kMin, a, b), smaller);
    }
  }
}

TEST(ReduceTest, EveryTypePicksTheLargerAndTheSmaller) {
  ExpectFolds<float>(DType::kF32, {-2.5F, -1, 0, 1, 2.5F, std::numeric_limits<float>::infinity()});
  ExpectFolds<double>(DType::kF64, {-2.5, -1, 0, 1, 2.5, 1e300});
  ExpectFolds<int32_t>(DType::kI32, {INT32_MIN, -1, 0, 1, INT32_MAX});
  ExpectFolds<int64_t>(DType::kI64, {INT64_MIN, -1, 0, 1, INT64_MAX});
  ExpectFolds<uint8_t>(DType::kU8, {0, 1, 127, 128, 255});
}

TEST(ReduceTest, SumsOfIntegersWrap) {
  EXPECT_EQ(FoldOne<int32_t>(DType::kI32, ReduceOp::kSum, INT32_MAX, 2), INT32_MIN + 1);
  EXPECT_EQ(FoldOne<int64_t>(DType::kI64, ReduceOp::kSum, INT64_MIN, -1), INT64_MAX);
  EXPECT_EQ(FoldOne<uint8_t>(DType::kU8, ReduceOp::kSum, 200, 100), 44);
  EXPECT_EQ(FoldOne<float>(DType::kF32, ReduceOp::kSum, 1.5F, 2.25F), 3.75F);
  EXPECT_EQ(FoldOne<double>(DType::kF64, ReduceOp::kSum, 1.5, 2.25), 3.75);
}

template <typename T>
void ExpectNanWins(DType dtype, T nan, T number, bool (*is_nan)(T)) {
  for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin}) {
    EXPECT_TRUE(is_nan(FoldOne(dtype, op, nan, number)));
    EXPECT_TRUE(is_nan(FoldOne(dtype, op, number, nan)));
    EXPECT_FALSE(is_nan(FoldOne(dtype, op, number, number)));
  }
}

TEST(ReduceTest, ANanOnEitherSideIsKept) {
  ExpectNanWins<float>(DType::kF32, NAN, 1.F, [](float x) { return std::isnan(x); });
  ExpectNanWins<double>(DType::kF64, NAN, 1.0, [](double x) { return std::isnan(x); });
  ExpectNanWins<uint16_t>(DType::kBF16, 0x7FC0, 0x3F80,
                          [](uint16_t x) { return std::isnan(FromBF16(x)); });
  ExpectNanWins<uint16_t>(DType::kF16, 0x7E00, 0x3C00,
                          [](uint16_t x) { return std::isnan(FromF16(x)); });
}

TEST(ReduceTest, SixteenBitFloatsKeepTheirBits) {
  // 1, -2, 3 and the smallest number of each type.
  for (const auto& [dtype, bits] : std::vector<std::pair<DType, std::vector<uint16_t>>>{
           {DType::kBF16, {0x3F80, 0xC000, 0x4040, 0x0001}},
           {DType::kF16, {0x3C00, 0xC000, 0x4200, 0x0001}}}) {
    const uint16_t one = bits[0];
    const uint16_t minus_two = bits[1];
    const uint16_t three = bits[2];
    const uint16_t tiny = bits[3];
    EXPECT_EQ(FoldOne(dtype, ReduceOp::kMax, one, three), three);
    EXPECT_EQ(FoldOne(dtype, ReduceOp::kMax, one, minus_two), one);
    EXPECT_EQ(FoldOne(dtype, ReduceOp::kMin, one, minus_two), minus_two);
    EXPECT_EQ(FoldOne(dtype, ReduceOp::kMin, one, three), one);
    EXPECT_EQ(FoldOne(dtype, ReduceOp::kMin, one, tiny), tiny);
    EXPECT_EQ(FoldOne(dtype, ReduceOp::kMax, minus_two, tiny), tiny);
  }
}

TEST(ReduceTest, OnlySumsOfSixteenBitFloatsAreWidened) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    EXPECT_EQ(PartialType(dtype, ReduceOp::kSum), DType::kF32);
    EXPECT_EQ(Widening(dtype, ReduceOp::kSum), 2);
    EXPECT_EQ(PartialType(dtype, ReduceOp::kMax), dtype);
    EXPECT_EQ(Widening(dtype, ReduceOp::kMin), 1);
  }
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kI32, DType::kI64, DType::kU8}) {
    EXPECT_EQ(PartialType(dtype, ReduceOp::kSum), dtype);
    EXPECT_EQ(Widening(dtype, ReduceOp::kSum), 1);
  }
}

TEST(ReduceTest, EveryElementIsFolded) {
  std::vector<float> partial(37, 1);
  std::vector<float> value(37);
  for (size_t i = 0; i < value.size(); ++i) {
    value[i] = static_cast<float>(i);
  }
  FoldInto(std::as_writable_bytes(std::span(partial)), std::as_bytes(std::span(value)), DType::kF32,
           ReduceOp::kSum);
  for (size_t i = 0; i < partial.size(); ++i) {
    EXPECT_EQ(partial[i], static_cast<float>(i + 1));
  }
}

}  // namespace
}  // namespace heddle::comm
