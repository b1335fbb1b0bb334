/// \file
/// Goal: the 16-bit floats are those of their definitions. Method: a reference by arithmetic in
/// double (fractions times powers of two), which shares nothing with the bit tricks under test;
/// every one of the 65536 patterns, every tie between neighbours, random numbers of every exponent.
#include "base/tensor/half.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/random.h"
#include "tests/support/seed.h"

namespace heddle {
namespace {

struct Format {
  DType type;
  int fraction_bits;
  int bias;
  float (*widen)(uint16_t);
  uint16_t (*round)(float);

  int exponent_bits() const { return 15 - fraction_bits; }
  int largest_exponent() const { return (1 << exponent_bits()) - 1; }  ///< Of infinities and NaN.
};

constexpr Format kFormats[] = {
    {.type = DType::kBF16, .fraction_bits = 7, .bias = 127, .widen = FromBF16, .round = ToBF16},
    {.type = DType::kF16, .fraction_bits = 10, .bias = 15, .widen = FromF16, .round = ToF16}};

bool IsNan(const Format& format, uint16_t bits) {
  const int fraction = bits & ((1 << format.fraction_bits) - 1);
  return ((bits & 0x7FFF) >> format.fraction_bits) == format.largest_exponent() && fraction != 0;
}

/// What a pattern means, by the definition of IEEE 754; not for a NaN.
double Value(const Format& format, uint16_t bits) {
  const int exponent = (bits & 0x7FFF) >> format.fraction_bits;
  const int fraction = bits & ((1 << format.fraction_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == format.largest_exponent()) {
    return sign * std::numeric_limits<double>::infinity();
  }
  const int whole = exponent == 0 ? 0 : 1 << format.fraction_bits;
  return sign *
         std::ldexp(whole + fraction, std::max(exponent, 1) - format.bias - format.fraction_bits);
}

/// The pattern nearest to `value`, ties to even: a multiple of the unit at its exponent.
uint16_t Nearest(const Format& format, double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  const int infinity = format.largest_exponent() << format.fraction_bits;
  if (std::isinf(magnitude)) {
    return static_cast<uint16_t>(sign | infinity);
  }
  const int least = 1 - format.bias;
  const int exponent = magnitude == 0 ? least : std::max(std::ilogb(magnitude), least);
  const double units = std::nearbyint(std::ldexp(magnitude, format.fraction_bits - exponent));
  // A subnormal number has exponent field 0 and `units` as fraction; carries go into the exponent.
  const int pattern = ((exponent - least) << format.fraction_bits) + static_cast<int>(units);
  return static_cast<uint16_t>(sign | std::min(pattern, infinity));
}

TEST(HalfTest, EveryPatternMeansWhatItsDefinitionSays) {
  for (const Format& format : kFormats) {
    for (uint32_t i = 0; i < 65536; ++i) {
      const auto bits = static_cast<uint16_t>(i);
      const float wide = format.widen(bits);
      if (IsNan(format, bits)) {
        ASSERT_TRUE(std::isnan(wide)) << i;
        // Back again: the same pattern, made quiet.
        ASSERT_EQ(format.round(wide), bits | (1U << (format.fraction_bits - 1))) << i;
        continue;
      }
      ASSERT_EQ(static_cast<double>(wide), Value(format, bits)) << i;
      ASSERT_EQ(std::signbit(wide), (bits & 0x8000) != 0) << i;
      ASSERT_EQ(format.round(wide), bits) << i;
    }
  }
}

TEST(HalfTest, TiesGoToEvenAndTheirNeighboursToTheNearest) {
  for (const Format& format : kFormats) {
    const int infinity = format.largest_exponent() << format.fraction_bits;
    for (int i = 0; i < infinity; ++i) {
      const double low = Value(format, static_cast<uint16_t>(i));
      // Behind the largest number the next step would be the next power of two.
      const double high = i + 1 < infinity ? Value(format, static_cast<uint16_t>(i + 1))
                                           : std::ldexp(1, format.bias + 1);
      const auto tie = static_cast<float>(low + (high - low) / 2);
      ASSERT_EQ(static_cast<double>(tie), low + (high - low) / 2) << "fp32 has every tie";
      for (const float sign : {1.0F, -1.0F}) {
        const int mark = sign < 0 ? 0x8000 : 0;
        ASSERT_EQ(format.round(sign * tie), mark | (i % 2 == 0 ? i : i + 1)) << i;
        ASSERT_EQ(format.round(sign * std::nextafter(tie, 0.0F)), mark | i) << i;
        const float above = std::nextafter(tie, std::numeric_limits<float>::infinity());
        ASSERT_EQ(format.round(sign * above), mark | (i + 1)) << i;
      }
    }
  }
}

TEST(HalfTest, RandomNumbersRoundAsArithmeticSays) {
  Random random(testing::TestSeed());
  for (int i = 0; i < 2'000'000; ++i) {
    const auto bits = static_cast<uint32_t>(random.Below(uint64_t{1} << 32));
    const auto value = std::bit_cast<float>(bits);
    for (const Format& format : kFormats) {
      if (std::isnan(value)) {
        ASSERT_TRUE(IsNan(format, format.round(value))) << bits;
      } else {
        ASSERT_EQ(format.round(value), Nearest(format, value)) << bits;
      }
    }
  }
}

TEST(HalfTest, BuffersOfAnyLengthAndAlignmentAreConvertedElementByElement) {
  Random random(3);
  for (const Format& format : kFormats) {
    for (const size_t count : {0U, 1U, 7U, 64U, 1001U}) {
      for (const size_t shift : {0U, 1U}) {
        Bytes wide(count * 4 + shift);
        for (std::byte& byte : wide) {
          byte = static_cast<std::byte>(random.Below(256));
        }
        Bytes narrow(count * 2 + shift);
        RoundFromF32(std::span(wide).subspan(shift), std::span(narrow).subspan(shift), format.type);
        Bytes again(count * 4 + shift);
        WidenToF32(std::span(narrow).subspan(shift), format.type, std::span(again).subspan(shift));
        for (size_t i = 0; i < count; ++i) {
          float value = 0;
          uint16_t bits = 0;
          float back = 0;
          std::memcpy(&value, wide.data() + shift + i * 4, 4);
          std::memcpy(&bits, narrow.data() + shift + i * 2, 2);
          std::memcpy(&back, again.data() + shift + i * 4, 4);
          ASSERT_EQ(bits, format.round(value)) << i;
          ASSERT_EQ(std::bit_cast<uint32_t>(back), std::bit_cast<uint32_t>(format.widen(bits)));
        }
      }
    }
  }
}

}  // namespace
}  // namespace heddle
