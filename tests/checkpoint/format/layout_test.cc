/// \file
/// Goal: the geometry agrees with element-wise counting.
#include "checkpoint/format/layout.h"

#include <set>

#include <gmock/gmock.h>

#include "checkpoint/format/digest.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {
namespace {

TEST(LayoutTest, CoverageAgreesWithCountingElements) {
  Random random(TestSeed());
  int sound = 0;
  for (int round = 0; round < 2000; ++round) {
    const Shape shape = {random.Between(1, 6), random.Between(1, 6)};
    auto boxes = RandomSplit(WholeBox(shape), 6, random);
    if (random.Below(2) == 0) {
      Box& victim = boxes[random.Below(boxes.size())];
      const size_t d = random.Below(2);
      (random.Below(2) == 0 ? victim.offset : victim.extent)[d] += random.Between(-1, 1);
    }
    std::vector<const Box*> pointers;
    std::vector<int> counts(static_cast<size_t>(ElementCount(shape)), 0);
    bool expected = true;
    for (const Box& box : boxes) {
      pointers.push_back(&box);
      for (int64_t i = box.offset[0]; i < box.offset[0] + box.extent[0]; ++i) {
        for (int64_t j = box.offset[1]; j < box.offset[1] + box.extent[1]; ++j) {
          const bool inside = i >= 0 && i < shape[0] && j >= 0 && j < shape[1];
          expected = expected && inside;
          counts[inside ? static_cast<size_t>(i * shape[1] + j) : 0] += 1;
        }
      }
      // A box without elements must still lie inside.
      for (size_t d = 0; d < 2; ++d) {
        expected = expected && box.offset[d] >= 0 && box.offset[d] + box.extent[d] <= shape[d] &&
                   box.extent[d] >= 0;
      }
    }
    for (const int count : counts) {
      expected = expected && count == 1;
    }
    EXPECT_EQ(CheckCoverage(shape, pointers).ok(), expected);
    sound += expected ? 1 : 0;
  }
  EXPECT_GT(sound, 500);
  EXPECT_LT(sound, 1500 + 300);
}

TEST(LayoutTest, HostileShapesAndBoxesAreRefused) {
  EXPECT_FALSE(CheckedElementCount({INT64_MAX, INT64_MAX}));
  EXPECT_FALSE(CheckedElementCount({-1}));
  EXPECT_FALSE(CheckedElementCount({0, INT64_MAX}));
  EXPECT_EQ(CheckedElementCount({0, int64_t{1} << 40}), 0);
  EXPECT_EQ(CheckedElementCount({}), 1);
  EXPECT_FALSE(CheckInside({4}, {{INT64_MAX}, {1}}).ok());
  EXPECT_FALSE(CheckInside({4}, {{1}, {INT64_MAX}}).ok());
  EXPECT_FALSE(CheckInside({4}, {{-1}, {2}}).ok());
  EXPECT_FALSE(CheckInside({4}, {{0, 0}, {1, 1}}).ok());
  EXPECT_FALSE(CheckInside({4}, {{0}, {1, 1}}).ok());
  EXPECT_FALSE(CheckInside({4, 4}, {{0, 0}, {4}}).ok());
  EXPECT_FALSE(CheckedElementCount({3, -2}));
  EXPECT_FALSE(CheckedElementCount({-3, -2}));
  const Box scalar{{}, {}};
  EXPECT_TRUE(CheckCoverage({}, std::vector<const Box*>{&scalar}).ok());
  EXPECT_FALSE(CheckCoverage({}, std::vector<const Box*>{&scalar, &scalar}).ok());
  EXPECT_FALSE(CheckCoverage({}, {}).ok());
  EXPECT_TRUE(CheckCoverage({0, 3}, {}).ok());
}

// All pairs of them would take longer than a test may.
TEST(LayoutTest, TheCoverageOfManyBoxesIsNotOneOfAllPairs) {
  constexpr int64_t kAcross = 384;
  std::vector<Box> boxes;
  for (int64_t i = 0; i < kAcross * kAcross; ++i) {
    boxes.push_back({{i / kAcross * 4, i % kAcross * 8}, {4, 8}});
  }
  std::vector<const Box*> pointers;
  for (const Box& box : boxes) {
    pointers.push_back(&box);
  }
  EXPECT_TRUE(CheckCoverage({4 * kAcross, 8 * kAcross}, pointers).ok());
}

TEST(LayoutTest, ChunksTileTheirBox) {
  Random random(TestSeed());
  for (int round = 0; round < 300; ++round) {
    const Shape extent = {random.Between(1, 40), random.Between(1, 40), random.Between(1, 5)};
    const int64_t limit = random.Between(16, 4000);
    const Shape chunk = ChooseChunk(extent, 4, limit);
    const ChunkGrid grid(extent, chunk);
    EXPECT_LE(grid.chunk_elements() * 4, std::max<int64_t>(limit, 4));
    if (grid.count() > 1) {
      EXPECT_GT(grid.chunk_elements() * 4 * 2 + 4 * 2 * 40 * 5, limit)
          << "chunks are not needlessly small";
    }
    std::vector<Box> tiles;
    for (int64_t i = 0; i < grid.count(); ++i) {
      tiles.push_back(grid.Clipped(i));
      EXPECT_TRUE(Contains(grid.Full(i), grid.Clipped(i)));
    }
    std::vector<const Box*> pointers;
    for (const Box& tile : tiles) {
      pointers.push_back(&tile);
    }
    EXPECT_TRUE(CheckCoverage(extent, pointers).ok());
    const Box part = RandomSplit(WholeBox(extent), 6, random).front();
    std::vector<int64_t> touching;
    for (int64_t i = 0; i < grid.count(); ++i) {
      if (Intersect(tiles[static_cast<size_t>(i)], part)) {
        touching.push_back(i);
      }
    }
    EXPECT_EQ(grid.Touching(part), touching);
  }
}

TEST(LayoutTest, AChunkThatJustFitsIsNotHalved) {
  EXPECT_EQ(ChooseChunk({16, 16}, 4, 1024), (Shape{16, 16}));
  EXPECT_EQ(ChooseChunk({16, 16}, 4, 1023), (Shape{8, 16}));
}

TEST(LayoutTest, ContiguousTilesPassFromFrontToBack) {
  Random random(TestSeed());
  for (int round = 0; round < 500; ++round) {
    Shape extent;
    for (size_t d = 1 + random.Below(4); d > 0; --d) {
      extent.push_back(random.Between(1, 9));
    }
    const int64_t limit = random.Between(1, 2 * ElementCount(extent));
    const Shape tile = ContiguousTile(extent, limit);
    EXPECT_LE(ElementCount(tile), limit);
    const ChunkGrid grid(extent, tile);
    int64_t next = 0;
    for (int64_t i = 0; i < grid.count(); ++i) {
      const Box box = grid.Clipped(i);
      // Element by element: side by side, and behind those of the tile before.
      for (int64_t k = 0; k < ElementCount(box.extent); ++k) {
        int64_t rest = k;
        int64_t position = 0;
        int64_t stride = 1;
        for (size_t d = extent.size(); d-- > 0;) {
          position += (box.offset[d] + rest % box.extent[d]) * stride;
          rest /= box.extent[d];
          stride *= extent[d];
        }
        ASSERT_EQ(position, next++) << ToString(extent) << " in tiles " << ToString(tile);
      }
    }
    EXPECT_EQ(next, ElementCount(extent));
  }
}

/// The digest by its definition, element by element.
Digest SlowDigest(const Bytes& bytes, size_t element) {
  Digest sum;
  for (uint64_t i = 0; i * element < bytes.size(); ++i) {
    uint64_t bits = 0;
    for (size_t k = 0; k < 8; ++k) {
      const size_t byte = element == 8 ? k : k % 4;
      if (byte < element) {
        bits |= uint64_t{static_cast<uint8_t>(bytes[i * element + byte])} << (8 * k);
      }
    }
    const uint64_t x = (0x2545F4914F6CDD1DU + i * 0x9E3779B97F4A7C15U) ^ bits;
    const uint64_t y = (0x8EBC6AF09C88C6E3U + i * 0xC2B2AE3D27D4EB4FU) ^ bits;
    sum.low += uint64_t{static_cast<uint32_t>(x)} * static_cast<uint32_t>(x >> 32);
    sum.high += uint64_t{static_cast<uint32_t>(y)} * static_cast<uint32_t>(y >> 32);
  }
  return sum;
}

TEST(LayoutTest, TheDigestIsTheDocumentedOne) {
  Random random(TestSeed());
  for (const DType dtype : {DType::kU8, DType::kBF16, DType::kF32, DType::kI64}) {
    State state;
    AddTensor(state, {"w", "master", dtype, {13, 17}}, random);
    const Shape shape = {13, 17};
    EXPECT_EQ(DigestBox(state.bytes[0], SizeOf(dtype), shape, WholeBox(shape)),
              SlowDigest(state.bytes[0], static_cast<size_t>(SizeOf(dtype))));
  }
}

TEST(LayoutTest, DigestsSeePositionAndBits) {
  Random random(TestSeed());
  State state;
  AddTensor(state, {"w", "master", DType::kF32, {13, 17}}, random);
  const Bytes& bytes = state.bytes[0];
  const auto digest = [](const Bytes& of) {
    return DigestBox(of, 4, {13, 17}, WholeBox({13, 17}));
  };
  Digest sum;
  for (const Box& box : RandomSplit(WholeBox({13, 17}), 8, random)) {
    sum += DigestBox(Extract(bytes, state.tensors[0], box), 4, {13, 17}, box);
  }
  EXPECT_EQ(sum, digest(bytes));
  Bytes changed = bytes;
  changed[random.Below(changed.size())] ^= std::byte{4};
  EXPECT_NE(digest(changed), digest(bytes));
  changed = bytes;
  std::swap_ranges(changed.begin(), changed.begin() + 4, changed.begin() + 4);
  EXPECT_TRUE(changed == bytes || digest(changed) != digest(bytes)) << "two elements change places";
  EXPECT_NE(DigestBox(bytes, 4, {17, 13}, WholeBox({17, 13})).low, 0U);
  EXPECT_EQ(DigestBox(bytes, 4, {17, 13}, WholeBox({17, 13})), digest(bytes))
      << "indices are linear";
}

TEST(LayoutTest, Names) {
  EXPECT_EQ(StepFolderName(40), "step-00000040");
  EXPECT_EQ(ParseStepFolderName("step-00000040"), 40);
  for (const char* bad : {"step-40", "step-000000040", "step-0000004x", "step--0000040",
                          ".tmp-step-00000040.g3", ""}) {
    EXPECT_FALSE(ParseStepFolderName(bad)) << bad;
  }
  EXPECT_EQ(ParseTemporaryFolderName(TemporaryFolderName(40, 3)), 3);
  EXPECT_FALSE(ParseTemporaryFolderName("step-00000040.g3"));
  EXPECT_FALSE(ParseTemporaryFolderName(".tmp-step-00000040.g"));
  EXPECT_FALSE(ParseTemporaryFolderName(".tmp-step-40.g3"));
  EXPECT_FALSE(ParseTemporaryFolderName(".tmp-other-00000040.g3"));
  EXPECT_FALSE(ParseTemporaryFolderName(".tmp-.g3"));
  EXPECT_FALSE(ParseTemporaryFolderName(".tmp-step-00000040.g-3"));
  EXPECT_EQ(EscapeName("layers.0/wq@50%"), "layers.0%2Fwq%4050%25");
  EXPECT_EQ(EscapeName(".."), "%2E.");
  EXPECT_EQ(EscapeName("a b\t\x7F"), "a%20b%09%7F");
  EXPECT_EQ(DatasetName("w", "master", {4, 4}, {{0, 0}, {4, 4}}), "/master/w");
  EXPECT_EQ(DatasetName("w", "master", {4, 4}, {{2, 0}, {2, 4}}), "/master/w@2,0");
  for (const char* bad : {"", ".", "..", "a/b", "/etc/passwd"}) {
    EXPECT_FALSE(IsPlainFileName(bad)) << bad;
  }
  EXPECT_TRUE(IsPlainFileName(std::string(255, 'a')));
  EXPECT_FALSE(IsPlainFileName(std::string(256, 'a')));
  EXPECT_FALSE(IsPlainFileName(std::string_view("a\0b", 3)));
  EXPECT_TRUE(IsPlainFileName("w0.g3.h5"));
}

}  // namespace
}  // namespace heddle::checkpoint
