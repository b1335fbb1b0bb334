/// \file
/// Frames put together from blocks: zstd reads them, and what is no such frame is not taken apart.
#include "checkpoint/codec/zstd_frame.h"

#include <gmock/gmock.h>
#include <zstd.h>

#include "base/bytes.h"
#include "base/random.h"

namespace heddle::checkpoint {
namespace {

constexpr size_t kBlock = kZstdBlockBytes;

Bytes Noise(size_t bytes) {
  Random random(bytes);
  Bytes noise(bytes);
  for (std::byte& byte : noise) {
    byte = static_cast<std::byte>(random.Below(256));
  }
  return noise;
}

/// A frame of raw blocks, by the builder.
Bytes RawFrame(const Bytes& content) {
  Bytes frame(kZstdFrameBytes + content.size() + 3 * (content.size() / kBlock + 1));
  ZstdFrameBuilder builder(frame, content.size());
  builder.AddRaw(content);
  frame.resize(builder.Finish());
  return frame;
}

Bytes Read(const Bytes& frame, size_t bytes) {
  Bytes content(bytes + 1);
  const size_t got = ZSTD_decompress(content.data(), content.size(), frame.data(), frame.size());
  EXPECT_FALSE(ZSTD_isError(got)) << ZSTD_getErrorName(got);
  content.resize(ZSTD_isError(got) ? 0 : got);
  return content;
}

TEST(ZstdFrameTest, ZstdReadsFramesOfRawBlocks) {
  for (const size_t bytes :
       {size_t{0}, size_t{1}, kBlock - 1, kBlock, kBlock + 1, 3 * kBlock + 7}) {
    const Bytes content = Noise(bytes);
    const Bytes frame = RawFrame(content);
    EXPECT_EQ(frame.size(),
              kZstdFrameBytes + bytes + 3 * std::max<size_t>(1, (bytes + kBlock - 1) / kBlock));
    EXPECT_TRUE(Read(frame, bytes) == content) << bytes;
  }
}

TEST(ZstdFrameTest, RawPartsAreFoundAgain) {
  const Bytes content = Noise(2 * kBlock + 10);
  const Bytes frame = RawFrame(content);
  auto parts = ZstdFrameParts::Open(frame);
  ASSERT_TRUE(parts.has_value());
  const auto first = parts->Next(kBlock);
  ASSERT_TRUE(first.has_value());
  EXPECT_TRUE(first->raw);
  EXPECT_EQ(first->blocks.size(), kBlock + 3);
  EXPECT_TRUE(std::equal(content.begin(), content.begin() + kBlock, first->blocks.begin() + 3));
  EXPECT_FALSE(parts->AtEnd());
  const auto rest = parts->Next(kBlock + 10);
  ASSERT_TRUE(rest.has_value());
  EXPECT_EQ(rest->blocks.size(), kBlock + 10 + 6);
  EXPECT_TRUE(parts->AtEnd());
  EXPECT_FALSE(parts->Next(1).has_value()) << "nothing follows the last block";
}

TEST(ZstdFrameTest, PartsThatAreNotThereAreNotFound) {
  const Bytes content = Noise(kBlock + 10);
  const Bytes frame = RawFrame(content);
  // Too few bytes, too many, a part that ends within a block.
  EXPECT_FALSE(ZstdFrameParts::Open(frame)->Next(kBlock + 9).has_value());
  EXPECT_FALSE(ZstdFrameParts::Open(frame)->Next(kBlock + 11).has_value());
  EXPECT_FALSE(ZstdFrameParts::Open(frame)->Next(10).has_value());
  for (const size_t cut : {size_t{1}, size_t{10}, size_t{11}, size_t{13}}) {
    const std::span<const std::byte> shorter(frame.data(), frame.size() - cut);
    EXPECT_FALSE(ZstdFrameParts::Open(shorter)->Next(kBlock + 10).has_value()) << cut;
  }
  const std::span<const std::byte> header(frame.data(), kZstdFrameBytes);
  EXPECT_TRUE(ZstdFrameParts::Open(header).has_value());
  EXPECT_FALSE(ZstdFrameParts::Open(header.first(kZstdFrameBytes - 1)).has_value());
  Bytes other = frame;
  other[4] = std::byte{0};
  EXPECT_FALSE(ZstdFrameParts::Open(other).has_value()) << "a header of another form";
}

/// A frame without content size, as AddBlocksOf wants it.
Bytes PlainFrame(const Bytes& content) {
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 0);
  Bytes frame(ZSTD_compressBound(content.size()));
  frame.resize(ZSTD_compress2(context, frame.data(), frame.size(), content.data(), content.size()));
  ZSTD_freeCCtx(context);
  return frame;
}

TEST(ZstdFrameTest, CompressedAndRawBlocksMakeOneFrame) {
  Bytes smooth(kBlock);
  for (size_t i = 0; i < smooth.size(); ++i) {
    smooth[i] = static_cast<std::byte>(i % 50);
  }
  const Bytes rough = Noise(100);
  const Bytes plain = PlainFrame(smooth);
  Bytes frame(kZstdFrameBytes + plain.size() + rough.size() + 16);
  ZstdFrameBuilder builder(frame, smooth.size() + rough.size());
  ASSERT_TRUE(builder.AddBlocksOf(plain).ok());
  builder.AddRaw(rough);
  frame.resize(builder.Finish());
  Bytes whole = smooth;
  whole.insert(whole.end(), rough.begin(), rough.end());
  EXPECT_TRUE(Read(frame, whole.size()) == whole);
  auto parts = ZstdFrameParts::Open(frame);
  const auto first = parts->Next(smooth.size());
  ASSERT_TRUE(first.has_value());
  EXPECT_FALSE(first->raw);
  const auto second = parts->Next(rough.size());
  ASSERT_TRUE(second.has_value());
  EXPECT_TRUE(second->raw);
  EXPECT_TRUE(parts->AtEnd());
}

TEST(ZstdFrameTest, BlocksThatAreNotWholeAreRefused) {
  Bytes memory(1000);
  const Bytes plain = PlainFrame(Noise(50));
  for (const size_t bytes : {size_t{0}, size_t{5}, plain.size() - 1}) {
    ZstdFrameBuilder builder(memory, 50);
    EXPECT_EQ(builder.AddBlocksOf(std::span(plain).first(bytes)).code(), StatusCode::kInternal)
        << bytes;
  }
  Bytes other = plain;
  other[4] = std::byte{1};
  EXPECT_EQ(ZstdFrameBuilder(memory, 50).AddBlocksOf(other).code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace heddle::checkpoint
