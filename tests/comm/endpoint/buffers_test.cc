// Calls that fail while a buffer of theirs is being read or written: it stays until that has ended.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

#include <gtest/gtest.h>
#include <malloc.h>

#include "comm/endpoint/measure.h"
#include "tests/comm/wires.h"

namespace {

std::atomic<const std::byte*> g_watched = nullptr;
std::atomic<bool> g_freed = false;

[[maybe_unused]] void Free(void* block) {
  const std::byte* const watched = g_watched.load();
  const auto* const begin = static_cast<const std::byte*>(block);
  if (watched != nullptr && std::less_equal<>()(begin, watched) &&
      std::less<>()(watched, begin + ::malloc_usable_size(block))) {
    g_freed.store(true);
  }
  std::free(block);
}

}  // namespace

// Every block of this program, so that it is seen when the watched one goes. ThreadSanitizer has
// its own, and sees such a use itself.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HEDDLE_OWN_BLOCKS
#endif
#endif
#if !defined(HEDDLE_OWN_BLOCKS)
void* operator new(size_t size) {
  void* const block = std::malloc(std::max<size_t>(size, 1));
  if (block == nullptr) {
    throw std::bad_alloc();
  }
  return block;
}
void operator delete(void* block) noexcept {
  Free(block);
}
void operator delete(void* block, size_t /*size*/) noexcept {
  Free(block);
}
#endif

namespace heddle::comm {
namespace {

using std::chrono::milliseconds;

FrameKind KindOf(std::span<const iovec> parts) {
  FrameHeader header;
  if (parts.front().iov_len == sizeof(header)) {
    std::memcpy(&header, parts.front().iov_base, sizeof(header));
    return header.kind;
  }
  return FrameKind::kWaiting;
}

/// A gather whose root gives up because of one child while the event loop writes to the other.
/// Whether it came to that.
bool GiveUpDuringAWrite() {
  const auto whole = std::make_shared<WireFate>();
  const auto to_silent = std::make_shared<WireFate>();
  const auto from_silent = std::make_shared<WireFate>();
  const auto to_other = std::make_shared<WireFate>();
  std::atomic<std::thread::id> root{};
  std::atomic<bool> wrote = false;
  // One child says nothing more from the moment at which it gets the first of everyone's records.
  to_silent->may_write = [&](std::span<const iovec> parts) {
    if (KindOf(parts) == FrameKind::kEager) {
      from_silent->Cut();
    }
    return true;
  };
  // To the other, the loop writes until long after the call's deadline.
  to_other->may_write = [&](std::span<const iovec> parts) {
    if (KindOf(parts) != FrameKind::kData || wrote.load()) {
      return true;
    }
    if (std::this_thread::get_id() == root.load()) {
      return false;
    }
    wrote.store(true);
    g_watched.store(static_cast<const std::byte*>(parts[1].iov_base));
    const Time until = After(milliseconds(300));
    while (Now() < until && !g_freed.load()) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    g_watched.store(nullptr);
    if (g_freed.load()) {
      to_other->Cut();  // Nothing more of it is read, so that the test can say so.
    }
    return true;
  };
  WiredGroup group(3, milliseconds(700), [&](int from, int to) {
    return from == 1 ? from_silent : from != 0 ? whole : to == 1 ? to_silent : to_other;
  });
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      CollectiveOptions options;
      if (rank == 0) {
        root.store(std::this_thread::get_id());
        options.deadline = After(milliseconds(90));  // Before its wait looks around.
      }
      const Bytes mine(100'000);
      const auto records = group.of(rank).AllGatherBytes(mine, options);
      // The other child has everything if the loop was quick enough.
      EXPECT_TRUE(rank == 2 || !records.ok());
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return wrote.load();
}

TEST(BuffersTest, OfAGatherStayWhileTheyAreWritten) {
  bool wrote = false;
  for (int attempt = 0; attempt < 10 && !wrote; ++attempt) {  // A busy machine may be too late.
    wrote = GiveUpDuringAWrite();
    ASSERT_FALSE(g_freed.load()) << "the records went while they were written";
  }
  EXPECT_TRUE(wrote);
}

// A receive that was left behind would take the next message of its tag, into memory that is gone.
TEST(BuffersTest, OfAMeasurementTakeNothingAfterItsEnd) {
  constexpr uint64_t kTag = 5;
  const auto whole = std::make_shared<WireFate>();
  const auto answers = std::make_shared<WireFate>();
  std::atomic<bool> full = false;
  answers->may_write = [&](std::span<const iovec> /*parts*/) { return !full.load(); };
  WiredGroup group(2, std::chrono::seconds(5),
                   [&](int from, int /*to*/) { return from == 1 ? answers : whole; });
  std::thread measures([&] {
    const auto link = MeasurePair(group.of(1), 0, kTag, After(milliseconds(400)));
    EXPECT_EQ(link.status().code(), StatusCode::kDeadlineExceeded) << link.status().ToString();
  });
  Communicator& other = group.of(0);
  int64_t more = 0;
  const auto raw = std::as_writable_bytes(std::span(&more, 1));
  EXPECT_TRUE(other.Send(1, kTag, raw, true).Wait().ok());
  EXPECT_TRUE(other.Recv(1, kTag, raw, true).Wait().ok());
  do {
    EXPECT_TRUE(other.Recv(1, kTag, raw, true).Wait().ok());
    EXPECT_TRUE(other.Send(1, kTag, raw, true).Wait().ok());
  } while (more != 0);
  full.store(true);
  Bytes data(16 << 10, std::byte{7});
  more = static_cast<int64_t>(data.size());
  EXPECT_TRUE(other.Send(1, kTag, raw, true).Wait().ok());
  measures.join();
  full.store(false);
  EXPECT_TRUE(other.Send(1, kTag, data, true).Wait().ok());
  Bytes received(data.size());
  const Status status =
      group.of(1).Recv(0, kTag, received, true).Wait(After(std::chrono::seconds(2)));
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(received, data);
}

}  // namespace
}  // namespace heddle::comm
