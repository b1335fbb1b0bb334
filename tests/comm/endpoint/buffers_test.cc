// Calls that fail while a buffer of theirs is being read or written: it stays until that has ended.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
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

/// Whether `attempt` came to what it is about, with ever more time until its deadline: on a busy
/// machine that may pass before.
bool ComesAbout(const std::function<bool(Duration patience)>& attempt) {
  for (Duration patience = milliseconds(100); patience < kAmple; patience *= 2) {
    if (attempt(patience) || testing::Test::HasFailure()) {
      return true;
    }
  }
  return false;
}

/// A gather whose root gives up because of one child while the event loop writes to the other.
bool GiveUpDuringAWrite(Duration patience) {
  const auto whole = std::make_shared<WireFate>();
  const auto to_silent = std::make_shared<WireFate>();
  const auto from_silent = std::make_shared<WireFate>();
  const auto to_other = std::make_shared<WireFate>();
  std::atomic<std::thread::id> root{};
  std::atomic<Time> deadline{};
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
    wrote.store(Now() < deadline.load());
    g_watched.store(static_cast<const std::byte*>(parts[1].iov_base));
    const Time until = deadline.load() + milliseconds(200);
    while (Now() < until && !g_freed.load()) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    g_watched.store(nullptr);
    if (g_freed.load()) {  // Nothing more of it is read, so that the test can say so.
      to_other->Cut();
    }
    return true;
  };
  // A wait that looks for its reason would write itself.
  WiredGroup group(
      3, 4 * patience + milliseconds(300),
      [&](int from, int to) {
        return from == 1 ? from_silent : from != 0 ? whole : to == 1 ? to_silent : to_other;
      },
      false);
  std::vector<std::thread> threads;
  for (const int rank : {0, 1, 2}) {
    threads.emplace_back([&, rank] {
      CollectiveOptions options;
      if (rank == 0) {
        root.store(std::this_thread::get_id());
        deadline.store(After(patience));
        options.deadline = deadline.load();
      }
      const auto records = group.of(rank).AllGatherBytes(Bytes(100'000), options);
      // The other child has everything if the loop was quick enough.
      EXPECT_TRUE(rank == 2 || !records.ok());
    });
  }
  std::ranges::for_each(threads, &std::thread::join);
  EXPECT_FALSE(g_freed.load()) << "the records went while they were written";
  return wrote.load();
}

TEST(BuffersTest, OfAGatherStayWhileTheyAreWritten) {
  EXPECT_TRUE(ComesAbout(GiveUpDuringAWrite));
}

/// A measurement that gives up when data is announced to it and its answer finds no room.
bool GiveUpAMeasurement(Duration patience) {
  constexpr uint64_t kTag = 5;
  const auto whole = std::make_shared<WireFate>();
  const auto answers = std::make_shared<WireFate>();
  std::atomic<bool> full = false;
  std::atomic<bool> stuck = false;
  answers->may_write = [&](std::span<const iovec> /*parts*/) {
    stuck.store(full.load());
    return !full.load();
  };
  WiredGroup group(2, kAmple, [&](int from, int /*to*/) { return from == 1 ? answers : whole; });
  std::atomic<bool> gave_up = false;
  std::thread measures([&] {
    const auto link = MeasurePair(group.of(1), 0, kTag, After(patience));
    EXPECT_EQ(link.status().code(), StatusCode::kDeadlineExceeded) << link.status().ToString();
    gave_up.store(true);
  });
  Communicator& other = group.of(0);
  int64_t more = 0;
  const auto raw = std::as_writable_bytes(std::span(&more, 1));
  const auto ends = [&](const Work& work) { return work.Wait(After(2 * patience)).ok(); };
  bool answered = ends(other.Send(1, kTag, raw, true)) && ends(other.Recv(1, kTag, raw, true));
  do {
    answered =
        answered && ends(other.Recv(1, kTag, raw, true)) && ends(other.Send(1, kTag, raw, true));
  } while (answered && more != 0);
  full.store(true);
  Bytes data(16 << 10, std::byte{7});
  more = static_cast<int64_t>(data.size());
  answered = answered && ends(other.Send(1, kTag, raw, true));
  while (!gave_up.load() && !stuck.load()) {
    std::this_thread::yield();
  }
  measures.join();
  if (!answered || !stuck.load()) {
    return false;
  }
  full.store(false);
  // Bulk, as what the measurement was about to receive.
  EXPECT_TRUE(other.Send(1, kTag, data, false).Wait().ok());
  Bytes received(data.size());
  const Status status = group.of(1).Recv(0, kTag, received, false).Wait();
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(received, data);
  return true;
}

// A receive that was left behind would take the next message of its tag, into memory that is gone.
TEST(BuffersTest, OfAMeasurementTakeNothingAfterItsEnd) {
  EXPECT_TRUE(ComesAbout(GiveUpAMeasurement));
}

}  // namespace
}  // namespace heddle::comm
