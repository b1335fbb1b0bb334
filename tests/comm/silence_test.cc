// A member falls silent at any byte of its stream, with or without hearing the others: every
// survivor's call ends at its deadline and names that member, however long the chain of waits
// between the two is.
#include <cstdlib>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "tests/comm/cluster.h"
#include "tests/comm/operations.h"
#include "tests/comm/wires.h"
#include "tests/support/pauses.h"
#include "tests/support/seed.h"
#include "tests/support/tier.h"

namespace heddle::comm {
namespace {

using std::chrono::milliseconds;

constexpr int kMembers = 4;
/// Several of the looks by which members learn whom they wait for.
const Duration kTimeout = std::chrono::seconds(kSlowdown > 1 ? 3 : 1);
/// Groups at a time: they sleep most of the time.
constexpr int kTrafficClasses = 8;

int RoundsWanted() {
  const char* text = std::getenv("HEDDLE_SILENCE_ROUNDS");
  return text != nullptr ? std::atoi(text) : testing::Scaled(4, 8, kSlowdown > 1 ? 12 : 48);
}

/// How a member's last call ended.
struct End {
  Status status;
  Time begun;
  Time at;
};

// Everyone calls until an error; they leave together, so that each one's error is its own. The last
// rank begins first, each other `stagger` after the next; below zero it is the first rank.
std::vector<End> CallUntilTheEnd(WiredGroup& group,
                                 const std::string& operation,
                                 size_t bytes,
                                 Duration stagger = {}) {
  const int size = group.of(0).size();
  std::vector<End> ends(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Calls calls(group.of(rank), operation, bytes);
      End& end = ends[static_cast<size_t>(rank)];
      std::this_thread::sleep_for(stagger < Duration() ? -rank * stagger : (size - rank) * stagger);
      while (end.status.ok()) {
        end.begun = Now();
        end.status = calls.Call();
      }
      end.at = Now();
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
  static const testing::Pauses pauses;
  const auto whole = std::make_shared<WireFate>();
  const auto cut = std::make_shared<WireFate>();
  cut->left.store(one.arrives);
  cut->deaf.store(one.deaf);
  WiredGroup group(one.members, kTimeout,
                   [&](int from, int /*to*/) { return from == one.victim ? cut : whole; });
  const std::vector<End> ends = CallUntilTheEnd(group, one.operation, one.bytes, one.stagger);
  ASSERT_TRUE(cut->silent());
  for (int rank = 0; rank < one.members; ++rank) {
    if (rank == one.victim) {
      continue;
    }
    const End& end = ends[static_cast<size_t>(rank)];
    EXPECT_EQ(end.status.code(), StatusCode::kDeadlineExceeded)
        << one.ToString() << ": worker-" << rank << ": " << end.status.ToString();
    if (one.operation != "messages") {
      EXPECT_THAT(end.status.message() + ";",
                  ::testing::ContainsRegex(WiredGroup::Name(one.victim) + "[ ;]"))
          << one.ToString() << ": worker-" << rank << ": " << end.status.ToString();
    }
    const Time since = std::max(end.begun, cut->cut_at.load());
    EXPECT_LT(end.at - since - pauses.Within(since, end.at), kTimeout + kTimeout / 10 * kSlowdown)
        << one.ToString() << ": worker-" << rank << ": " << end.status.ToString();
  }
}

// The frame's receive is matched, and the rest of the frame never comes. The survivor that waits
// for the receiver learns what it waits for.
TEST(SilenceTest, InTheMiddleOfASmallMessageIsNamed) {
  for (const int64_t arrives : {100, 4000}) {
    const auto whole = std::make_shared<WireFate>();
    const auto cut = std::make_shared<WireFate>();
    const auto half = std::make_shared<WireFate>();
    cut->Cut();
    half->left.store(arrives);
    // The root serves its two subtrees; one of them begins to hear it.
    for (const int to : {1, 2}) {
      WiredGroup group(kMembers, kTimeout, [&](int from, int peer) {
        return from != 0 ? whole : peer == to ? half : cut;
      });
      const std::vector<End> ends = CallUntilTheEnd(group, "broadcast", 8000);
      for (int rank = 1; rank < kMembers; ++rank) {
        EXPECT_THAT(ends[static_cast<size_t>(rank)].status.message(),
                    ::testing::HasSubstr("worker-0 holds it up"));
      }
    }
  }
}

// Most members neither wait for the silent one nor for one that does; in a ring, neighbours wait
// for each other. Each looks around just before the one that it waits for.
TEST(SilenceTest, IsNamedAlongALongChainOfWaits) {
  for (const char* const operation : {"broadcast", "all_gather", "reduce_scatter"}) {
    for (const int victim : {0, 5}) {
      ExpectNamed({.members = 16,
                   .operation = operation,
                   .bytes = 2 << 20,
                   .victim = victim,
                   .arrives = 100,
                   .deaf = true,
                   .stagger = milliseconds(3)});
    }
  }
}

// The last one's wait goes on for long after the one it waits for has met its deadline.
TEST(SilenceTest, IsNamedByAMemberWhosePeersHaveGivenUp) {
  ExpectNamed({.operation = "broadcast",
               .bytes = 64,
               .victim = 0,
               .arrives = 0,
               .stagger = -kTimeout * 9 / 10});
}

TEST(SilenceTest, AtAnyByteIsNamedByEverySurvivor) {
  const std::vector<std::string> operations = Calls::Names();
  Random random(testing::TestSeed());
  std::mutex mutex;
  int rounds = RoundsWanted();
  const auto next = [&]() -> std::optional<Case> {
    const std::lock_guard lock(mutex);
    if (rounds-- <= 0 || ::testing::Test::HasFailure()) {
      return std::nullopt;
    }
    Case one;
    one.members = kMembers + 3 * static_cast<int>(random.Below(2));
    one.operation = operations[random.Below(operations.size())];
    one.bytes = std::array<size_t, 4>{64, 4096, 100'000, 4 << 20}[random.Below(4)];
    if (one.operation == "barrier") {  // Its messages are small: megabytes are many thousand calls.
      one.bytes = 64;
    }
    one.victim = static_cast<int>(random.Below(static_cast<uint64_t>(one.members)));
    one.arrives = static_cast<int64_t>(random.Below(3000 + 2 * one.bytes));
    one.deaf = random.Below(2) == 0;
    return one;
  };
  std::vector<std::thread> traffic_classes;
  for (int traffic_class = 0; traffic_class < kTrafficClasses / (kSlowdown > 1 ? 4 : 1);
       ++traffic_class) {
    traffic_classes.emplace_back([&] {
      while (const auto one = next()) {
        ExpectNamed(*one);
      }
    });
  }
  for (std::thread& traffic_class : traffic_classes) {
    traffic_class.join();
  }
}

}  // namespace
}  // namespace heddle::comm
