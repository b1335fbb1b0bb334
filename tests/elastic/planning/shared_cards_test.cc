// How workers on one card divide its memory, and that the cluster of a plan has their parts.
#include "elastic/planning/shared_cards.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "elastic/planning/measurement.h"

namespace heddle::elastic {
namespace {

using testing::ElementsAre;

constexpr int64_t kGiB = int64_t{1} << 30;

struct Sharer {
  std::string host;
  std::string card;
  int64_t alone = 0;  // What it may use of the card if it is alone.
  int64_t given = 0;  // Its memory by the job; 0: none.
  int64_t scratch = 0;
};

// The memory of each worker after the division, of what it could use before.
std::vector<int64_t> Divided(const std::vector<Sharer>& sharers) {
  std::vector<CardPart> parts;
  std::vector<program::WorkerProfile> workers;
  for (const Sharer& sharer : sharers) {
    parts.push_back({.host = sharer.host, .card = sharer.card, .bytes = sharer.alone});
    program::WorkerProfile profile;
    profile.scratch_bytes = sharer.scratch;
    profile.memory_bytes =
        PlannedBytes(sharer.given > 0 ? sharer.given : sharer.alone, sharer.scratch);
    workers.push_back(std::move(profile));
  }
  DivideCards(parts, workers);
  std::vector<int64_t> memory;
  for (const program::WorkerProfile& worker : workers) {
    memory.push_back(worker.memory_bytes);
  }
  return memory;
}

TEST(SharedCardsTest, TwoHaveHalfWithoutTheContextOfOne) {
  EXPECT_THAT(Divided({{"h", "GPU-1", 21 * kGiB + kGiB / 2}, {"h", "GPU-1", 21 * kGiB}}),
              ElementsAre(10 * kGiB, 10 * kGiB))
      << "the second saw the first one's context: the card has what the first saw";
}

TEST(SharedCardsTest, AKernelsScratchIsLeftByEach) {
  EXPECT_THAT(Divided({{"h", "GPU-1", 20 * kGiB, 0, kGiB}, {"h", "GPU-1", 20 * kGiB, 0, 0}}),
              ElementsAre(8 * kGiB + kGiB / 4, 9 * kGiB + kGiB / 4));
}

TEST(SharedCardsTest, ThoseOnOtherCardsKeepTheirs) {
  EXPECT_THAT(Divided({{"h", "GPU-1", 20 * kGiB},
                       {"h", "GPU-2", 20 * kGiB},
                       {"i", "GPU-1", 20 * kGiB},
                       {"h", "", 0, 3 * kGiB},
                       {"h", "", 0, 3 * kGiB}}),
              ElementsAre(20 * kGiB, 20 * kGiB, 20 * kGiB, 3 * kGiB, 3 * kGiB));
}

TEST(SharedCardsTest, WhatTheUserGaveStays) {
  EXPECT_THAT(Divided({{"h", "GPU-1", 23 * kGiB, 4 * kGiB},
                       {"h", "GPU-1", 23 * kGiB},
                       {"h", "GPU-1", 23 * kGiB}}),
              ElementsAre(4 * kGiB, 8 * kGiB, 8 * kGiB));
  EXPECT_THAT(Divided({{"h", "GPU-1", 23 * kGiB, 4 * kGiB}, {"h", "GPU-1", 23 * kGiB, 20 * kGiB}}),
              ElementsAre(4 * kGiB, 20 * kGiB));
}

TEST(SharedCardsTest, WhereNothingIsLeftNothingFits) {
  EXPECT_THAT(Divided({{"h", "GPU-1", kGiB}, {"h", "GPU-1", kGiB}}), ElementsAre(1, 1));
}

TEST(SharedCardsTest, TheClusterOfAPlanHasTheParts) {
  std::vector<Candidate> candidates;
  for (const char* name : {"a", "b"}) {
    WorkerMeasurement measurement;
    measurement.profile.worker = name;
    measurement.profile.flops_per_second = measurement.profile.bytes_per_second = 1e9;
    measurement.profile.memory_bytes = 21 * kGiB + kGiB / 2;
    measurement.link.link = {.latency_seconds = 1e-6, .bytes_per_second = 5e9, .transport = "shm"};
    measurement.card = "GPU-1";
    measurement.card_bytes = 21 * kGiB + kGiB / 2;
    candidates.push_back(
        {.name = name, .host = "host", .profile_json = MeasurementToJson(measurement)});
  }
  const auto two = ClusterOf(candidates);
  ASSERT_TRUE(two.ok()) << two.status().ToString();
  EXPECT_EQ(two->workers[0].memory_bytes, 10 * kGiB);
  EXPECT_EQ(two->workers[1].memory_bytes, 10 * kGiB);
  candidates.pop_back();
  EXPECT_EQ(ClusterOf(candidates)->workers[0].memory_bytes, 21 * kGiB + kGiB / 2)
      << "alone it has all";
}

}  // namespace
}  // namespace heddle::elastic
