/// \file
/// What a comparison says of two models: each sentence, each element type as a number, and what is
/// no difference. And what an element becomes in another type.
#include "checkpoint/convert/diff.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include <gmock/gmock.h>

#include "checkpoint/convert/cast.h"
#include "checkpoint/formats/format.h"
#include "checkpoint/storage/manifest_file.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {
namespace {

template <typename T>
Bytes BytesOf(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

struct Tensor {
  std::string name;
  DType dtype;
  Shape shape;
  Bytes bytes;
  std::string role = "master";
};

class DiffTest : public ::testing::Test {
 protected:
  std::string Write(const std::vector<Tensor>& tensors, const std::string& format = "safetensors") {
    const std::string path = fmt::format("{}/{}", folder_.path(), ++number_);
    SinkRequest request;
    request.path = path;
    for (const Tensor& one : tensors) {
      request.tensors.push_back(
          {.name = one.name, .role = one.role, .dtype = one.dtype, .shape = one.shape});
    }
    auto sink = (*FindFormat(format))->create(std::move(request));
    EXPECT_TRUE(sink.ok()) << sink.status().ToString();
    for (const Tensor& one : tensors) {
      if (!one.bytes.empty()) {
        EXPECT_TRUE((*sink)->Append(one.bytes).ok());
      }
    }
    EXPECT_TRUE((*sink)->Finish().ok());
    return path;
  }
  /// Of models of one tensor each.
  TensorDifference Of(const Tensor& a, const Tensor& b) {
    const auto difference = Diff(Write({a}), Write({b}));
    EXPECT_TRUE(difference.ok()) << difference.status().ToString();
    if (!difference.ok()) {
      return {};
    }
    EXPECT_EQ(difference->tensors.size(), 1U);
    EXPECT_EQ(difference->equal, difference->tensors[0].equal);
    return difference->tensors[0];
  }

  const TemporaryFolder folder_;
  int number_ = 0;
};

TEST_F(DiffTest, ElementsOfEachTypeAreNumbers) {
  const auto expect = [&](DType dtype, const Bytes& a, const Bytes& b, double most, double mean) {
    SCOPED_TRACE(DTypeName(dtype));
    const auto same = Of({"x", dtype, {3}, a}, {"x", dtype, {3}, a});
    EXPECT_TRUE(same.equal);
    EXPECT_EQ(same.max_abs, 0);
    EXPECT_EQ(same.mean_abs, 0);
    EXPECT_EQ(same.what, "");
    const auto other = Of({"x", dtype, {3}, a}, {"x", dtype, {3}, b});
    EXPECT_FALSE(other.equal);
    EXPECT_EQ(other.max_abs, most);
    EXPECT_EQ(other.mean_abs, mean);
    EXPECT_EQ(other.what, "");
  };
  expect(DType::kF32, BytesOf<float>({1, 2, 3}), BytesOf<float>({1, -2, 5}), 4, 2);
  expect(DType::kF64, BytesOf<double>({1, 2, 3}), BytesOf<double>({1, -2, 5}), 4, 2);
  expect(DType::kI32, BytesOf<int32_t>({1, 2, -3}), BytesOf<int32_t>({1, -2, -5}), 4, 2);
  expect(DType::kI64, BytesOf<int64_t>({1, int64_t{1} << 40, 3}), BytesOf<int64_t>({1, 0, 3}),
         0x1p40, 0x1p40 / 3);
  expect(DType::kU8, BytesOf<uint8_t>({1, 255, 3}), BytesOf<uint8_t>({1, 0, 3}), 255, 85);
  expect(DType::kBF16, BytesOf<uint16_t>({0x3F80, 0x4000, 0}),
         BytesOf<uint16_t>({0x3F80, 0x4080, 0x3F80}), 2, 1);
  expect(DType::kF16, BytesOf<uint16_t>({0x3C00, 0x4000, 0}),
         BytesOf<uint16_t>({0x3C00, 0x4400, 0x3C00}), 2, 1);
}

TEST_F(DiffTest, DoublesAreComparedAsDoubles) {
  const auto of = [&](double a, double b) {
    return Of({"x", DType::kF64, {1}, BytesOf<double>({a})},
              {"x", DType::kF64, {1}, BytesOf<double>({b})})
        .max_abs;
  };
  EXPECT_EQ(of(1, 1 + 0x1p-40), 0x1p-40) << "less than a float shows";
  EXPECT_EQ(of(1e300, 0), 1e300) << "more than a float holds";
}

TEST_F(DiffTest, WhatDiffersOtherwiseIsSaid) {
  const Bytes four = BytesOf<float>({1, 2, 3, 4});
  const auto shape = Of({"x", DType::kF32, {4}, four}, {"x", DType::kF32, {2, 2}, four});
  EXPECT_FALSE(shape.equal);
  EXPECT_EQ(shape.what, "shape [4] and [2, 2]");
  const auto type = Of({"x", DType::kF32, {2}, BytesOf<float>({1, 2})},
                       {"x", DType::kF64, {2}, BytesOf<double>({1, 2.5})});
  EXPECT_FALSE(type.equal);
  EXPECT_EQ(type.what, "fp32 and fp64");
  EXPECT_EQ(type.max_abs, 0.5);
  EXPECT_EQ(type.mean_abs, 0.25);
  const auto empty = Of({"x", DType::kF32, {0}, {}}, {"x", DType::kF32, {0}, {}});
  EXPECT_TRUE(empty.equal);
  EXPECT_EQ(empty.mean_abs, 0);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const auto of = [&](std::vector<float> a, std::vector<float> b) {
    return Of({"x", DType::kF32, {2}, BytesOf(a)}, {"x", DType::kF32, {2}, BytesOf(b)}).max_abs;
  };
  EXPECT_EQ(of({nan, 1}, {nan, 2}), 1) << "not a number in both is no distance";
  EXPECT_EQ(of({inf, 1}, {inf, 2}), 1);
  EXPECT_EQ(of({inf, 1}, {-inf, 1}), inf);
  EXPECT_EQ(of({0, nan}, {0, 1}), inf);
}

TEST_F(DiffTest, ATensorThatCannotBeReadIsNoDifference) {
  const Bytes bytes(4096, std::byte{1});
  const std::string a = Write({{"w", DType::kU8, {4096}, bytes}}, "native");
  const std::string b = Write({{"w", DType::kU8, {4096}, bytes}}, "native");
  EXPECT_TRUE(Diff(a, b)->equal);
  const auto manifest = LoadManifest(a);
  ASSERT_TRUE(manifest.ok()) << manifest.status().ToString();
  const ChunkRecord& chunk = manifest->tensors[0].boxes[0].chunks[0];
  std::fstream file(a + "/" + manifest->files[0].name,
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(chunk.address + chunk.bytes / 2);
  file.put('\x55');
  file.close();
  for (const auto& [left, right] : {std::pair(a, b), {b, a}}) {
    const Status status = Diff(left, right).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_THAT(status.message(), ::testing::HasSubstr("'w'"));
  }
}

TEST_F(DiffTest, TensorsAreFoundByNameAndRole) {
  const Bytes one = BytesOf<float>({1});
  const Bytes two = BytesOf<float>({2});
  const std::string a = Write({{"v", DType::kF32, {1}, one, "exp_avg"},
                               {"v", DType::kF32, {1}, one, "master"},
                               {"w", DType::kF32, {1}, one, "master"}},
                              "native");
  const std::string b = Write({{"v", DType::kF32, {1}, one, "exp_avg_sq"},
                               {"v", DType::kF32, {1}, two, "master"},
                               {"w", DType::kF32, {1}, one, "master"}},
                              "native");
  int64_t seen = 0;
  int64_t all = 0;
  const auto difference = Diff(a, b, [&](int64_t done, int64_t total) {
    seen = done;
    all = total;
  });
  ASSERT_TRUE(difference.ok()) << difference.status().ToString();
  EXPECT_FALSE(difference->equal);
  std::string text;
  for (const TensorDifference& one_of : difference->tensors) {
    text += fmt::format("{} {} {} {}|", one_of.name, one_of.role, one_of.equal, one_of.what);
  }
  EXPECT_EQ(text,
            "v exp_avg false only in A|v exp_avg_sq false only in B|v master false |w master true "
            "|");
  EXPECT_EQ(all, 2 * 4 + 2 * 4) << "both sides of what both have";
  EXPECT_EQ(seen, all);
}

template <typename From, typename To>
Status CastOne(From value, DType from, To& out, DType to) {
  return Cast(std::as_bytes(std::span(&value, 1)), from, std::as_writable_bytes(std::span(&out, 1)),
              to);
}

TEST(CastValuesTest, FloatsBecomeEachOther) {
  double wide = 0;
  float single = 0;
  uint16_t half = 0;
  EXPECT_TRUE(CastOne(1.5F, DType::kF32, wide, DType::kF64).ok());
  EXPECT_EQ(wide, 1.5);
  EXPECT_TRUE(CastOne(uint16_t{0x3FC0}, DType::kBF16, wide, DType::kF64).ok());
  EXPECT_EQ(wide, 1.5);
  EXPECT_TRUE(CastOne(uint16_t{0x3E00}, DType::kF16, wide, DType::kF64).ok());
  EXPECT_EQ(wide, 1.5);
  EXPECT_TRUE(CastOne(1.5, DType::kF64, single, DType::kF32).ok());
  EXPECT_EQ(single, 1.5F);
  EXPECT_TRUE(CastOne(1.5, DType::kF64, half, DType::kF16).ok());
  EXPECT_EQ(half, 0x3E00);
  EXPECT_TRUE(CastOne(uint16_t{0x3E00}, DType::kF16, half, DType::kBF16).ok());
  EXPECT_EQ(half, 0x3FC0);
  EXPECT_TRUE(CastOne(uint16_t{0x3FC0}, DType::kBF16, half, DType::kF16).ok());
  EXPECT_EQ(half, 0x3E00);
  int32_t number = 0;
  EXPECT_TRUE(CastOne(int32_t{-7}, DType::kI32, number, DType::kI32).ok());
  EXPECT_EQ(number, -7) << "its own type";
}

TEST(CastValuesTest, WhatDoesNotFitIsRefused) {
  uint16_t half = 0;
  float single = 0;
  const Status large = CastOne(70000.F, DType::kF32, half, DType::kF16);
  EXPECT_EQ(large.code(), StatusCode::kOutOfRange);
  EXPECT_EQ(large.message(), "70000 is too large for fp16");
  EXPECT_EQ(CastOne(1e39, DType::kF64, single, DType::kF32).message(),
            "1e+39 is too large for fp32");
  EXPECT_EQ(CastOne(3.4e38F, DType::kF32, half, DType::kBF16).code(), StatusCode::kOutOfRange);
  EXPECT_TRUE(CastOne(std::numeric_limits<float>::infinity(), DType::kF32, half, DType::kF16).ok());
  EXPECT_EQ(half, 0x7C00) << "infinity stays what it is";
  EXPECT_TRUE(
      CastOne(std::numeric_limits<double>::quiet_NaN(), DType::kF64, half, DType::kBF16).ok());
  const Status none = CastOne(int32_t{1}, DType::kI32, single, DType::kF32);
  EXPECT_EQ(none.code(), StatusCode::kUnimplemented);
  EXPECT_EQ(none.message(), fmt::format("{} elements do not become fp32", DTypeName(DType::kI32)));
  for (const DType type : {DType::kI32, DType::kI64, DType::kU8}) {
    EXPECT_FALSE(CanCast(type, DType::kF32));
    EXPECT_FALSE(CanCast(DType::kF32, type));
    EXPECT_TRUE(CanCast(type, type));
  }
  for (const DType a : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
    for (const DType b : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
      EXPECT_TRUE(CanCast(a, b));
    }
  }
}

}  // namespace
}  // namespace heddle::checkpoint
