/// \file
/// Goal: chunks decode to what was encoded, shrink like weights should, and nothing but one good
/// frame is accepted.
#include "checkpoint/codec/codec.h"

#include <cmath>
#include <cstring>

#include <gtest/gtest.h>
#include <zstd.h>

#include "checkpoint/codec/shuffle.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {
namespace {

Bytes Encoded(const Bytes& raw, int64_t element) {
  ChunkEncoder encoder;
  Bytes out(static_cast<size_t>(EncodedBound(static_cast<int64_t>(raw.size()))));
  const auto size = encoder.Encode(raw, element, out);
  EXPECT_TRUE(size.ok()) << size.status().ToString();
  out.resize(static_cast<size_t>(*size));
  return out;
}

/// fp32 weights N(0, 0.02), as initial weights are.
Bytes NormalWeights(size_t count, Random& random) {
  Bytes bytes(count * 4);
  for (size_t i = 0; i < count; ++i) {
    const double radius = std::sqrt(-2 * std::log(1 - random.Uniform()));
    const auto value =
        static_cast<float>(0.02 * radius * std::cos(6.283185307179586 * random.Uniform()));
    std::memcpy(bytes.data() + i * 4, &value, 4);
  }
  return bytes;
}

TEST(CodecTest, RoundTripForEverySizeAndElement) {
  Random random(TestSeed());
  ChunkDecoder decoder;
  for (const int64_t element : {1, 2, 4, 8}) {
    for (const size_t count : std::vector<size_t>{1, 2, 3, 1000, 2048, 2049, 70000, 131072}) {
      Bytes raw(count * static_cast<size_t>(element));
      for (std::byte& byte : raw) {
        byte = static_cast<std::byte>(random.Below(count % 2 == 0 ? 256 : 3));
      }
      Bytes planes(raw.size());
      Shuffle(raw, element, planes);
      for (size_t i = 0; i < raw.size(); ++i) {  // HDF5's shuffle, by its definition.
        const auto size = static_cast<size_t>(element);
        ASSERT_EQ(planes[i % size * count + i / size], raw[i]);
      }
      const Bytes stored = Encoded(raw, element);
      Bytes back(raw.size());
      const Status status = decoder.Decode(stored, element, back);
      ASSERT_TRUE(status.ok()) << status.ToString();
      ASSERT_EQ(back, raw);
      ASSERT_LE(stored.size(), raw.size() + 128) << "what does not shrink is stored as it is";
    }
  }
}

TEST(CodecTest, WeightsShrinkByEntropyWhateverTheChunk) {
  Random random(3);
  for (const size_t count : {size_t{16} << 10, size_t{100'000}, size_t{256} << 10}) {
    const Bytes raw = NormalWeights(count, random);
    Bytes half(raw.size() / 2);
    for (size_t i = 0; i < half.size(); ++i) {
      half[i] = raw[i / 2 * 4 + 2 + i % 2];
    }
    const auto ratio = [](const Bytes& bytes, int64_t element) {
      return static_cast<double>(bytes.size()) /
             static_cast<double>(Encoded(bytes, element).size());
    };
    EXPECT_GT(ratio(raw, 4), 1.18) << count;
    EXPECT_GT(ratio(half, 2), 1.43) << count;
  }
}

TEST(CodecTest, RowsOfZerosCostNextToNothing) {
  Random random(4);
  constexpr size_t kRowBytes = size_t{192} * 4;
  Bytes raw = NormalWeights(size_t{192} * 1024, random);
  for (size_t row = 0; row < 1024; row += 2) {  // Moments of tokens that never came.
    std::memset(raw.data() + row * kRowBytes, 0, kRowBytes);
  }
  const Bytes dense = NormalWeights(size_t{192} * 512, random);
  EXPECT_LT(Encoded(raw, 4).size(), Encoded(dense, 4).size() * 103 / 100);
}

TEST(CodecTest, FramesAreWhatZstdReads) {
  Random random(TestSeed());
  for (const size_t count : {size_t{5}, size_t{40'000}, size_t{262'144}, size_t{300'001}}) {
    const Bytes raw = NormalWeights(count, random);
    const Bytes stored = Encoded(raw, 4);
    Bytes planes(raw.size());
    ASSERT_EQ(ZSTD_decompress(planes.data(), planes.size(), stored.data(), stored.size()),
              raw.size());
    Bytes back(raw.size());
    Unshuffle(planes, 4, back);
    EXPECT_EQ(back, raw);
  }
}

TEST(CodecTest, FramesOfOtherWritersAreRead) {
  Random random(TestSeed());
  ChunkDecoder decoder;
  for (const int level : {1, 3, 19}) {
    const Bytes raw = NormalWeights(100'000 + random.Below(100'000), random);
    Bytes planes(raw.size());
    Shuffle(raw, 4, planes);
    Bytes stored(ZSTD_compressBound(raw.size()));
    stored.resize(ZSTD_compress(stored.data(), stored.size(), planes.data(), planes.size(), level));
    Bytes back(raw.size());
    const Status status = decoder.Decode(stored, 4, back);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(back, raw) << "level " << level;
  }
}

TEST(CodecTest, OnlyOneGoodFrameOfTheRightSizeIsAccepted) {
  Random random(5);
  const Bytes raw = NormalWeights(1000, random);
  const Bytes stored = Encoded(raw, 4);
  ChunkDecoder decoder;
  const auto code = [&](const Bytes& bytes, size_t size) {
    Bytes out(size);
    return decoder.Decode(bytes, 4, out).code();
  };
  EXPECT_EQ(code(stored, raw.size()), StatusCode::kOk);
  EXPECT_EQ(code(stored, raw.size() - 4), StatusCode::kDataLoss);
  EXPECT_EQ(code(stored, raw.size() + 4), StatusCode::kDataLoss);
  EXPECT_EQ(code({}, raw.size()), StatusCode::kDataLoss);
  Bytes bad = stored;
  bad.push_back(std::byte{0});
  EXPECT_EQ(code(bad, raw.size()), StatusCode::kDataLoss) << "trailing byte";
  bad = stored;
  bad.insert(bad.end(), stored.begin(), stored.end());
  EXPECT_EQ(code(bad, raw.size()), StatusCode::kDataLoss) << "two frames";
  for (size_t i = 0; i < stored.size(); ++i) {
    bad = stored;
    bad[i] ^= std::byte{0x10};
    // What a flipped bit of a value decodes to is the chunk's hash's affair (DamageTest); it may
    // not do anything else than give another value or be refused.
    const StatusCode flipped = code(bad, raw.size());
    EXPECT_TRUE(flipped == StatusCode::kOk || flipped == StatusCode::kDataLoss) << "flip at " << i;
    bad.resize(i);
    EXPECT_EQ(code(bad, raw.size()), StatusCode::kDataLoss) << "cut at " << i;
  }
  bad = stored;
  const std::string skippable("\x50\x2A\x4D\x18\x01\x00\x00\x00x", 9);
  bad.insert(bad.begin(), AsBytes(skippable).begin(), AsBytes(skippable).end());
  EXPECT_EQ(code(bad, raw.size()), StatusCode::kDataLoss) << "a frame to be skipped before it";
  bad = stored;
  bad[4] |= std::byte{1};  // A dictionary's number of one byte, before the content's size.
  bad.insert(bad.begin() + 5, std::byte{7});
  EXPECT_EQ(code(bad, raw.size()), StatusCode::kDataLoss) << "a dictionary";
  // A frame that claims 2^60 bytes is refused before anything is allocated.
  Bytes huge = stored;
  huge[12] = std::byte{0x10};  // The last of eight bytes of content size.
  EXPECT_EQ(code(huge, raw.size()), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace heddle::checkpoint
