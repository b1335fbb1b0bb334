// A member falls silent at any byte of its stream, with or without hearing the others: every
// survivor's call ends by its deadline and names that member, however long the chain of waits
// between the two is.
#include <cstdlib>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "tests/comm/cluster.h"
#include "tests/comm/operations.h"
#include "tests/comm/wires.h"
#include "tests/support/seed.h"
#include "tests/support/tier.h"

namespace heddle::comm {
namespace {

using std::chrono::milliseconds;

constexpr int kMembers = 4;
/// Many times what the looks take by which members learn whom they wait for, which is a tenth of a
/// second and little more: however late a busy machine wakes them.
constexpr Duration kTimeout = milliseconds(kSanitized ? 4000 : 1500);
/// Groups at a time: they sleep most of the time.
constexpr int kGroups = kSanitized ? 2 : 8;

int RoundsWanted() {
  const char* text = std::getenv("HEDDLE_SILENCE_ROUNDS");
  return text != nullptr ? std::atoi(text) : testing::Scaled(4, 8, kSanitized ? 12 : 48);
}

// Everyone calls until an error; they leave together, so that each one's error is its own. The last
// rank begins first, each other `stagger` after the next. How each one's last call ended.
std::vector<Status> CallUntilTheEnd(WiredGroup& group,
                                    const std::string& operation,
                                    size_t bytes,
                                    Duration stagger = {}) {
  const int size = group.of(0).size();
  std::vector<Status> ends(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Calls calls(group.of(rank), operation, bytes);
      Status& end = ends[static_cast<size_t>(rank)];
      std::this_thread::sleep_for((size - rank) * stagger);
      while (end.ok()) {
        end = calls.Call();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return ends;
}

struct Case {
  int members = kMembers;
  std::string operation;
  size_t bytes = 0;
  int victim = 0;
  int64_t arrives = 0;  ///< Bytes of the victim's.
  bool deaf = false;
  Duration stagger{};

  std::string ToString() const {
    return fmt::format("{} of {} bytes among {}, worker-{} is silent{} after {} bytes", operation,
                       bytes, members, victim, deaf ? " and deaf" : "", arrives);
  }
};

void ExpectNamed(const Case& one) {
  const auto whole = std::make_shared<WireFate>();
  const auto cut = std::make_shared<WireFate>();
  cut->left.store(one.arrives);
  cut->deaf.store(one.deaf);
  WiredGroup group(one.members, kTimeout,
                   [&](int from, int /*to*/) { return from == one.victim ? cut : whole; });
  // One group after the other has its messages moved, so that each call is over long before its
  // deadline; then they are silent at the same time.
  static std::mutex moving;
  std::unique_lock turn(moving);
  auto calls = std::async(std::launch::async, [&] {
    return CallUntilTheEnd(group, one.operation, one.bytes, one.stagger);
  });
  while (!cut->silent() && calls.wait_for(milliseconds(1)) == std::future_status::timeout) {
  }
  turn.unlock();
  const std::vector<Status> ends = calls.get();
  ASSERT_TRUE(cut->silent()) << one.ToString();
  for (int rank = 0; rank < one.members; ++rank) {
    if (rank == one.victim) {
      continue;
    }
    const Status& end = ends[static_cast<size_t>(rank)];
    EXPECT_EQ(end.code(), StatusCode::kDeadlineExceeded)
        << one.ToString() << ": worker-" << rank << ": " << end.ToString();
    if (one.operation != "messages") {
      EXPECT_THAT(end.message() + ";",
                  ::testing::ContainsRegex(WiredGroup::Name(one.victim) + "[ ;]"))
          << one.ToString() << ": worker-" << rank << ": " << end.ToString();
    }
  }
}

// What `next` gives, until that is nothing, several at a time.
void ExpectNamed(const std::function<std::optional<Case>()>& next) {
  std::mutex mutex;
  const auto take = [&] {
    const std::lock_guard lock(mutex);
    return ::testing::Test::HasFailure() ? std::nullopt : next();
  };
  std::vector<std::thread> groups;
  for (int group = 0; group < kGroups; ++group) {
    groups.emplace_back([&] {
      while (const auto one = take()) {
        ExpectNamed(*one);
      }
    });
  }
  for (std::thread& group : groups) {
    group.join();
  }
}

// The frame's receive is matched, and the rest of the frame never comes. The survivor that waits
// for the receiver learns what it waits for.
TEST(SilenceTest, InTheMiddleOfASmallMessageIsNamed) {
  std::vector<std::thread> groups;
  for (const int64_t arrives : {100, 4000}) {
    // The root serves its two subtrees; one of them begins to hear it.
    for (const int to : {1, 2}) {
      groups.emplace_back([arrives, to] {
        const auto whole = std::make_shared<WireFate>();
        const auto cut = std::make_shared<WireFate>();
        const auto half = std::make_shared<WireFate>();
        cut->Cut();
        half->left.store(arrives);
        WiredGroup group(kMembers, kTimeout, [&](int from, int peer) {
          return from != 0 ? whole : peer == to ? half : cut;
        });
        const std::vector<Status> ends = CallUntilTheEnd(group, "broadcast", 8000);
        for (int rank = 1; rank < kMembers; ++rank) {
          EXPECT_THAT(ends[static_cast<size_t>(rank)].message(),
                      ::testing::HasSubstr("worker-0 holds it up"));
        }
      });
    }
  }
  for (std::thread& group : groups) {
    group.join();
  }
}

// Most members neither wait for the silent one nor for one that does; in a ring, neighbours wait
// for each other. Each looks around just before the one that it waits for.
TEST(SilenceTest, IsNamedAlongALongChainOfWaits) {
  std::vector<Case> cases;
  for (const char* const operation : {"broadcast", "all_gather", "reduce_scatter"}) {
    for (const int victim : {0, 5}) {
      cases.push_back({.members = 16,
                       .operation = operation,
                       .bytes = 2 << 20,
                       .victim = victim,
                       .arrives = 100,
                       .deaf = true,
                       .stagger = milliseconds(3)});
    }
  }
  ExpectNamed([&]() -> std::optional<Case> {
    if (cases.empty()) {
      return std::nullopt;
    }
    const Case one = cases.back();
    cases.pop_back();
    return one;
  });
}

// A broadcast from the first member reaches the fourth through the third, which has met its
// deadline before the fourth calls.
TEST(SilenceTest, IsNamedByAMemberWhosePeerHasGivenUp) {
  const auto whole = std::make_shared<WireFate>();
  const auto cut = std::make_shared<WireFate>();
  cut->Cut();
  WiredGroup group(kMembers, kAmple, [&](int from, int /*to*/) { return from == 0 ? cut : whole; });
  for (const int rank : {2, 3}) {
    Bytes buffer(64);
    const Status end = group.of(rank).Broadcast(
        buffer, 0, {.group = {}, .tag = 0, .deadline = After(kTimeout / 2)});
    EXPECT_EQ(end.code(), StatusCode::kDeadlineExceeded) << end.ToString();
    EXPECT_THAT(end.message(), ::testing::HasSubstr("worker-0 holds it up")) << rank;
  }
}

TEST(SilenceTest, AtAnyByteIsNamedByEverySurvivor) {
  const std::vector<std::string> operations = Calls::Names();
  Random random(testing::TestSeed());
  int rounds = RoundsWanted();
  ExpectNamed([&]() -> std::optional<Case> {
    if (rounds-- <= 0) {
      return std::nullopt;
    }
    Case one;
    one.members = kMembers + 3 * static_cast<int>(random.Below(2));
    one.operation = operations[random.Below(operations.size())];
    one.bytes = std::array<size_t, 4>{64, 4096, 100'000, 1 << 20}[random.Below(4)];
    if (one.operation == "barrier") {  // Its messages are small: a megabyte is many thousand calls.
      one.bytes = 64;
    }
    one.victim = static_cast<int>(random.Below(static_cast<uint64_t>(one.members)));
    one.arrives = static_cast<int64_t>(random.Below(3000 + 2 * one.bytes));
    one.deaf = random.Below(2) == 0;
    return one;
  });
}

}  // namespace
}  // namespace heddle::comm
