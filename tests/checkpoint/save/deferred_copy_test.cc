/// \file
/// Goal: the copy holds what the memory held when it began, whoever changes what and when; and who
/// changes it never waits for more than it has to.
#include "checkpoint/save/deferred_copy.h"

#include <algorithm>
#include <future>
#include <numeric>

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/random.h"
#include "base/thread.h"
#include "tests/support/seed.h"

namespace heddle::checkpoint {
namespace {

constexpr size_t kMebibyte = size_t{1} << 20;

/// Pieces of random bytes, their copies, and what the copies should become.
class Memory {
 public:
  Memory(const std::vector<size_t>& sizes, Random& random) {
    for (const size_t size : sizes) {
      Bytes bytes(size);
      uint64_t value = random.Next();
      for (std::byte& byte : bytes) {
        value = value * 6364136223846793005 + 1442695040888963407;
        byte = static_cast<std::byte>(value >> 56);
      }
      live.push_back(std::move(bytes));
      copied.emplace_back(size, std::byte{0});
    }
    before = live;
  }

  std::vector<DeferredCopy::Piece> Pieces() {
    std::vector<DeferredCopy::Piece> pieces;
    for (size_t i = 0; i < live.size(); ++i) {
      pieces.push_back({.from = live[i], .to = copied[i].data()});
    }
    return pieces;
  }

  std::vector<Bytes> live;
  std::vector<Bytes> copied;
  std::vector<Bytes> before;
};

void Change(Bytes& bytes) {
  for (std::byte& byte : bytes) {
    byte ^= std::byte{0xFF};
  }
}

TEST(DeferredCopyTest, WhatIsSecuredMayChangeAndTheCopyHasTheOldValue) {
  Random random(3);
  Memory memory({1000, 3 * kMebibyte + 17, 0, 1}, random);
  DeferredCopy copy;
  copy.Begin(memory.Pieces());
  EXPECT_TRUE(copy.active());
  for (const size_t i : {size_t{1}, size_t{3}}) {
    copy.Secure(memory.live[i]);
    EXPECT_EQ(memory.copied[i], memory.before[i]) << "nobody else copies";
    Change(memory.live[i]);
  }
  EXPECT_NE(memory.copied[0], memory.before[0]) << "nobody has asked for it";
  EXPECT_TRUE(copy.active());
  copy.Finish();
  EXPECT_FALSE(copy.active());
  EXPECT_EQ(memory.copied, memory.before);
}

TEST(DeferredCopyTest, AnyByteOfAPieceSecuresItAndOthersDoNot) {
  Random random(4);
  Bytes bytes(64);
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(random.Below(256));
  }
  const std::span<const std::byte> whole(bytes);
  Bytes first(16);
  Bytes second(16);
  Bytes around(48);
  DeferredCopy copy;
  const auto begin = [&] {
    std::ranges::fill(first, std::byte{0});
    std::ranges::fill(second, std::byte{0});
    std::ranges::fill(around, std::byte{0});
    // The third overlaps both others and begins before them.
    copy.Begin({{.from = whole.subspan(16, 16), .to = first.data()},
                {.from = whole.subspan(32, 16), .to = second.data()},
                {.from = whole.subspan(0, 48), .to = around.data()}});
  };
  const auto is_copied = [&](const Bytes& to, size_t at) {
    return std::ranges::equal(to, whole.subspan(at, to.size()));
  };
  for (const size_t at : {size_t{32}, size_t{47}}) {
    begin();
    copy.Secure(whole.subspan(at, 1));
    EXPECT_FALSE(is_copied(first, 16));
    EXPECT_TRUE(is_copied(second, 32));
    EXPECT_TRUE(is_copied(around, 0));
    copy.Cancel();
  }
  begin();
  copy.Secure(whole.subspan(48, 16));
  EXPECT_FALSE(is_copied(first, 16) || is_copied(second, 32) || is_copied(around, 0));
  copy.Secure(whole.subspan(15, 2));
  EXPECT_TRUE(is_copied(first, 16) && is_copied(around, 0));
  EXPECT_FALSE(is_copied(second, 32));
  copy.Secure({});
  copy.Finish();
  EXPECT_TRUE(is_copied(second, 32));
}

TEST(DeferredCopyTest, NothingToCopyIsCompleteAtOnce) {
  DeferredCopy copy;
  EXPECT_FALSE(copy.active());
  copy.Finish();
  copy.Begin({});
  EXPECT_FALSE(copy.active());
  copy.Cancel();
}

TEST(DeferredCopyTest, NobodyIsLetGoWhileABlockIsRead) {
  const Bytes bytes(1000, std::byte{7});
  for (const bool cancel : {false, true}) {
    Bytes copied(bytes.size());
    std::promise<void> reading;
    std::promise<void> release;
    DeferredCopy copy([&] {
      reading.set_value();
      release.get_future().wait_for(std::chrono::seconds(60));
    });
    copy.Begin({{.from = bytes, .to = copied.data()}});
    const Thread background("copy", [&] { copy.Finish(); });
    reading.get_future().wait();
    auto freed =
        std::async(std::launch::async, [&] { cancel ? copy.Cancel() : copy.Secure(bytes); });
    // A slow machine may miss a wrong answer, and never sees one where there is none.
    EXPECT_EQ(freed.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
    EXPECT_TRUE(copy.active());
    release.set_value();
    freed.get();
    EXPECT_FALSE(copy.active());
    EXPECT_EQ(copied, bytes);
  }
}

TEST(DeferredCopyTest, AfterACancelNobodyReads) {
  Random random(5);
  Memory memory({4 * kMebibyte, 4 * kMebibyte}, random);
  DeferredCopy copy;
  copy.Begin(memory.Pieces());
  {
    const Thread background("copy", [&] { copy.Finish(); });
    copy.Cancel();
    EXPECT_FALSE(copy.active());
    // The sanitizers see a reader.
    Change(memory.live[0]);
    memory.live[1] = Bytes();
  }
  copy.Secure(memory.live[0]);
  memory.live[1].resize(4 * kMebibyte);
  memory.before = memory.live;
  copy.Begin(memory.Pieces());
  copy.Finish();
  EXPECT_EQ(memory.copied, memory.before);
}

/// An optimizer that changes pieces again and again, in an order of its own, beside threads that
/// copy; sometimes the copy is given up.
TEST(DeferredCopyTest, RandomInterleavings) {
  Random random(testing::TestSeed());
  DeferredCopy copy;
  for (int round = 0; round < 80; ++round) {
    std::vector<size_t> sizes(random.Below(12));
    for (size_t& size : sizes) {
      size = random.Below(4) == 0 ? random.Below(3 * kMebibyte) : random.Below(5000);
    }
    Memory memory(sizes, random);
    std::vector<size_t> order(sizes.size());
    std::iota(order.begin(), order.end(), size_t{0});
    for (size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[random.Below(i)]);
    }
    const bool given_up = random.Below(5) == 0;
    const size_t give_up_before = random.Below(order.size() + 1);
    copy.Begin(memory.Pieces());
    {
      std::vector<Thread> threads;
      for (uint64_t i = random.Below(4); i > 0; --i) {
        threads.emplace_back("copy", [&] { copy.Finish(); });
      }
      for (size_t i = 0; i < order.size(); ++i) {
        if (given_up && i == give_up_before) {
          copy.Cancel();
        }
        copy.Secure(memory.live[order[i]]);
        Change(memory.live[order[i]]);
      }
      if (!given_up) {
        copy.Finish();
      } else {
        copy.Cancel();
      }
    }
    EXPECT_FALSE(copy.active());
    for (size_t i = 0; i < sizes.size(); ++i) {
      const bool complete = !given_up || std::find(order.begin(), order.end(), i) - order.begin() <
                                             static_cast<std::ptrdiff_t>(give_up_before);
      EXPECT_TRUE(!complete || memory.copied[i] == memory.before[i]) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace heddle::checkpoint
