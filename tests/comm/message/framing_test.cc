// Frames over a byte stream that gives and takes as many bytes at a time as it likes.
#include <algorithm>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "comm/message/credits.h"
#include "comm/stream/frame_reader.h"
#include "comm/stream/frame_writer.h"
#include "tests/support/seed.h"

namespace heddle::comm {
namespace {

constexpr uint32_t kGeneration = 3;

struct Frame {
  FrameHeader header;
  Bytes payload;
};

Frame RandomFrame(Random& random) {
  Frame frame;
  frame.header.kind = FrameKind::kData;
  frame.header.generation = kGeneration;
  frame.header.id = random.Next();
  // Around the sizes at which the reader changes its way.
  const uint64_t sizes[] = {0, 1, 47, 4095, 4096, 4097, 8192, 20'000};
  frame.payload.resize(sizes[random.Below(std::size(sizes))]);
  frame.header.length = static_cast<uint32_t>(frame.payload.size());
  for (std::byte& byte : frame.payload) {
    byte = static_cast<std::byte>(random.Next());
  }
  return frame;
}

/// Gives random pieces of what was written.
class Pieces final : public ByteSource {
 public:
  explicit Pieces(Random& random) : random_(random) {}
  Result<size_t> Read(std::span<std::byte> buffer) override {
    EXPECT_FALSE(buffer.empty());
    const size_t most = std::min(buffer.size(), bytes.size() - done_);
    const size_t size = most == 0 ? 0 : std::min(most, size_t{random_.Below(9000)});
    std::memcpy(buffer.data(), bytes.data() + done_, size);
    done_ += size;
    return size;
  }
  bool finished() const { return done_ == bytes.size(); }
  Bytes bytes;

 private:
  Random& random_;
  size_t done_ = 0;
};

/// Writes it in random pieces; its buffer goes in the middle now and then.
void Write(Random& random, Frame frame, Bytes& stream) {
  FrameWriter writer;
  writer.Begin(frame.header, frame.payload.data());
  while (writer.active()) {
    if (random.Below(4) == 0) {
      writer.Own();
      std::fill(frame.payload.begin(), frame.payload.end(), std::byte{0xEE});
    }
    size_t taken = 0;
    size_t room = random.Below(5000);
    for (const iovec& part : writer.Parts(1 + random.Below(3000))) {
      const size_t size = std::min(room, part.iov_len);
      const auto* bytes = static_cast<const std::byte*>(part.iov_base);
      stream.insert(stream.end(), bytes, bytes + size);
      taken += size;
      room -= size;
    }
    const bool done = writer.Wrote(taken);
    EXPECT_EQ(done, !writer.active());
  }
}

TEST(FramingTest, WhatIsWrittenInPiecesIsReadInOthers) {
  Random random(testing::TestSeed());
  std::vector<Frame> frames;
  Pieces pieces(random);
  for (int i = 0; i < 300; ++i) {
    frames.push_back(RandomFrame(random));
    Write(random, frames.back(), pieces.bytes);
  }
  FrameReader reader(kGeneration);
  size_t next = 0;
  Bytes payload;
  bool dropped = false;
  while (next < frames.size()) {
    const auto step = reader.Advance(pieces);
    ASSERT_TRUE(step.ok()) << step.status().ToString();
    if (*step == FrameReader::Step::kBegan) {
      EXPECT_EQ(reader.header().id, frames[next].header.id);
      payload.assign(reader.header().length, std::byte{0});
      dropped = random.Below(4) == 0;
      reader.SetTarget(dropped ? nullptr : payload.data());
    } else if (*step == FrameReader::Step::kEnded) {
      EXPECT_TRUE(dropped || payload == frames[next].payload) << "frame " << next;
      ++next;
    }
  }
  EXPECT_TRUE(pieces.finished());
  EXPECT_FALSE(reader.HasStaged());
}

TEST(FramingTest, AForeignHeaderIsRefused) {
  Random random(testing::TestSeed());
  Pieces pieces(random);
  Frame frame = RandomFrame(random);
  frame.header.generation = kGeneration + 1;
  Write(random, frame, pieces.bytes);
  FrameReader reader(kGeneration);
  auto step = reader.Advance(pieces);
  while (step.ok() && *step != FrameReader::Step::kBegan) {
    step = reader.Advance(pieces);
  }
  EXPECT_EQ(step.status().code(), StatusCode::kDataLoss);
}

TEST(EagerCreditTest, TheWindowIsSpentToItsLastByte) {
  EagerCredit credit;
  EXPECT_FALSE(credit.Spend(kEagerWindow + 1));
  EXPECT_TRUE(credit.Spend(kEagerWindow));
  EXPECT_FALSE(credit.Spend(1));
  EXPECT_TRUE(credit.Return(10).ok());
  EXPECT_EQ(credit.left(), 10U);
  EXPECT_FALSE(credit.Spend(11));
  EXPECT_EQ(credit.Return(kEagerWindow - 9).code(), StatusCode::kDataLoss);
  EXPECT_TRUE(credit.Return(kEagerWindow - 10).ok());
}

TEST(EagerWindowTest, CreditsAreAnnouncedInQuarters) {
  EagerWindow window;
  ASSERT_TRUE(window.Take(kEagerWindow).ok());
  EXPECT_EQ(window.Take(1).code(), StatusCode::kDataLoss);
  EXPECT_EQ(window.Free(kEagerWindow / 4 - 1), 0U);
  EXPECT_EQ(window.held(), kEagerWindow - kEagerWindow / 4 + 1);
  EXPECT_EQ(window.Take(1).code(), StatusCode::kDataLoss) << "the sender does not know yet";
  EXPECT_EQ(window.Free(2), kEagerWindow / 4 + 1);
  EXPECT_TRUE(window.Take(kEagerWindow / 4 + 1).ok());
  EXPECT_EQ(window.Take(1).code(), StatusCode::kDataLoss);
}

TEST(EagerWindowDeathTest, FreeingMoreThanIsHeldIsABrokenInvariant) {
  EagerWindow window;
  ASSERT_TRUE(window.Take(100).ok());
  EXPECT_DEATH((void)window.Free(101), "101 bytes freed of 100 held");
}

}  // namespace
}  // namespace heddle::comm
