/// \file
/// The small value types: bytes, element types, shapes and boxes, hashes.
#include <limits>

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/tensor/dtype.h"
#include "base/tensor/shape.h"
#include "base/yaml/quote.h"

namespace heddle {
namespace {

TEST(BytesTest, ReadsWhatWasWrittenAndNothingMore) {
  ByteWriter writer;
  writer.Put(uint8_t{7});
  writer.Put(-1.5);
  writer.PutString("text");
  ByteReader reader(writer.bytes());
  EXPECT_EQ(*reader.Get<uint8_t>(), 7);
  EXPECT_EQ(*reader.Get<double>(), -1.5);
  EXPECT_EQ(*reader.GetString(), "text");
  EXPECT_EQ(reader.left(), 0U);
  EXPECT_EQ(reader.Get<uint8_t>().status().code(), StatusCode::kDataLoss);
}

TEST(BytesTest, ALengthLargerThanTheRestIsRefused) {
  ByteWriter writer;
  writer.Put(uint32_t{0xffffffff});
  writer.PutRaw(AsBytes("abc"));
  ByteReader reader(writer.bytes());
  EXPECT_EQ(reader.GetString().status().message(), "truncated: 4294967295 bytes wanted, 3 left");
}

TEST(BytesTest, EveryTruncationIsAnError) {
  ByteWriter writer;
  writer.PutString("some text");
  for (size_t size = 0; size < writer.bytes().size(); ++size) {
    ByteReader reader(std::span(writer.bytes()).first(size));
    EXPECT_FALSE(reader.GetString().ok()) << size;
  }
}

TEST(DTypeTest, NamesAndSizes) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64, DType::kI32,
                            DType::kI64, DType::kU8}) {
    EXPECT_EQ(*ParseDType(DTypeName(dtype)), dtype);
    EXPECT_GT(SizeOf(dtype), 0);
  }
  EXPECT_FALSE(ParseDType("float").ok());
}

TEST(QuoteTest, WhatJsonDoesNotTakeAsItIsIsEscaped) {
  EXPECT_EQ(QuoteJson(""), R"("")");
  EXPECT_EQ(QuoteJson("a \"b\" \\ \n\t\r"), R"("a \"b\" \\ \n\t\r")");
  EXPECT_EQ(QuoteJson("\x01\x1f \x7e\x7f"), "\"\\u0001\\u001f \x7e\\u007f\"");
  EXPECT_EQ(QuoteJson("\xc3\xa9/'"), "\"\xc3\xa9/'\"");
}

TEST(BoxTest, IntersectsAndContains) {
  const Box a{.offset = {0, 0}, .extent = {4, 4}};
  const Box b{.offset = {2, 3}, .extent = {4, 4}};
  EXPECT_EQ(Intersect(a, b), (Box{.offset = {2, 3}, .extent = {2, 1}}));
  EXPECT_EQ(Intersect(a, Box{.offset = {4, 0}, .extent = {1, 1}}), std::nullopt);
  EXPECT_TRUE(Contains(a, *Intersect(a, b)));
  EXPECT_FALSE(Contains(a, b));
  EXPECT_EQ(ToString(b), "[2:6, 3:7]");
  EXPECT_EQ(WholeBox({2, 3}), (Box{.offset = {0, 0}, .extent = {2, 3}}));
  EXPECT_EQ(ElementCount({}), 1);
  EXPECT_EQ(ToString(Shape{2, 3}), "[2, 3]");
}

TEST(UnitEdgeTest, UnitsTileTheItemsAndAreAsEqualAsTheyCanBe) {
  for (const int units : {1, 2, 3, 8, 64}) {
    for (const int64_t items : {0, 1, 5, 8, 9, 100, 4096}) {
      EXPECT_EQ(UnitEdge(items, units, 0), 0);
      EXPECT_EQ(UnitEdge(items, units, units), items);
      for (int unit = 0; unit < units; ++unit) {
        EXPECT_EQ(UnitEdge(items, units, unit), unit * items / units);
        const int64_t size = UnitEdge(items, units, unit + 1) - UnitEdge(items, units, unit);
        EXPECT_TRUE(size == items / units || size == items / units + 1)
            << items << " items, unit " << unit << " of " << units;
      }
    }
  }
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(UnitEdge(kMax, 4, 4), kMax);
  EXPECT_EQ(UnitEdge(kMax, 4, 2), kMax / 2);
}

TEST(HashTest, DependsOnEveryByteAndTheSeed) {
  EXPECT_EQ(Hash64("abc"), Hash64(AsBytes("abc")));
  EXPECT_NE(Hash64("abc"), Hash64("abd"));
  EXPECT_NE(Hash64("abc"), Hash64("abc", 1));
  EXPECT_EQ(Hash128Hex(AsBytes("")), "99aa06d3014798d86001c324468d497f");
}

}  // namespace
}  // namespace heddle
