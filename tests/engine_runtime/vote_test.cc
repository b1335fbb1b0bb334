/// \file
/// Goal: what workers tell each other in a vote arrives as it was said, and all decide alike.
#include "engine/runtime/vote.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace heddle::runtime {
namespace {

/// Every combination of the flags.
std::vector<VoteFlags> AllFlags() {
  std::vector<VoteFlags> all;
  for (unsigned bits = 0; bits < 16; ++bits) {
    all.push_back({.stop = (bits & 1) != 0,
                   .saving = (bits & 2) != 0,
                   .replicating = (bits & 4) != 0,
                   .unreplicated = (bits & 8) != 0});
  }
  return all;
}

TEST(VoteTest, RecordsAreReadAsTheyWereWritten) {
  for (const VoteFlags& flags : AllFlags()) {
    VoteRecord record{.step = 7, .flags = flags, .norms = {}, .losses = {}};
    record.norms.push_back({.parameter = 3, .leaf = 9, .elements = 12, .sum_of_squares = 2.5});
    record.losses.push_back({.microbatch = 1, .loss = 0.5});
    const Bytes bytes = EncodeVote(record);
    const auto read = DecodeVote(bytes);
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ(read->step, 7);
    EXPECT_EQ(read->flags, flags);
    ASSERT_EQ(read->norms.size(), 1U);
    EXPECT_EQ(read->norms[0].parameter, 3);
    EXPECT_EQ(read->norms[0].leaf, 9);
    EXPECT_EQ(read->norms[0].elements, 12);
    EXPECT_EQ(read->norms[0].sum_of_squares, 2.5);
    ASSERT_EQ(read->losses.size(), 1U);
    EXPECT_EQ(read->losses[0].loss, 0.5);
    EXPECT_FALSE(DecodeVote(std::span(bytes).first(bytes.size() - 1)).ok());
  }
}

TEST(VoteTest, WhatOneSaysHoldsForAll) {
  for (const VoteFlags& one : AllFlags()) {
    for (const VoteFlags& other : AllFlags()) {
      const auto outcome = DecideVote({{.step = 7, .flags = one, .norms = {}, .losses = {}},
                                       {.step = 7, .flags = other, .norms = {}, .losses = {}}},
                                      {}, 0);
      ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
      EXPECT_EQ(outcome->flags.stop, one.stop || other.stop);
      EXPECT_EQ(outcome->flags.saving, one.saving || other.saving);
      EXPECT_EQ(outcome->flags.replicating, one.replicating || other.replicating);
      EXPECT_EQ(outcome->flags.unreplicated, one.unreplicated || other.unreplicated);
    }
  }
}

VoteRecord Of(std::vector<VoteRecord::Norm> norms) {
  return {.step = 7, .flags = {}, .norms = std::move(norms), .losses = {}};
}

const std::vector<int64_t> kElements = {10, 6};

TEST(VoteTest, PartsOfAParameterAddUpToItsNorm) {
  const auto outcome =
      DecideVote({Of({{.parameter = 0, .elements = 4, .sum_of_squares = 1},
                      {.parameter = 1, .elements = 6, .sum_of_squares = 2}}),
                  Of({}), Of({{.parameter = 0, .leaf = 1, .elements = 6, .sum_of_squares = 6}})},
                 kElements, 0);
  ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
  EXPECT_EQ(outcome->gradient_norm, 3);
}

TEST(VoteTest, TheOrderOfPartsIsTheirsAndNotTheReporters) {
  // One of these sums loses the ones: 2^53 + 1 + 1 is 2^53, and 1 + 1 + 2^53 is not.
  const VoteRecord::Norm large{.parameter = 0, .leaf = 2, .elements = 8, .sum_of_squares = 0x1p53};
  const VoteRecord::Norm first{.parameter = 0, .leaf = 0, .elements = 1, .sum_of_squares = 1};
  const VoteRecord::Norm second{.parameter = 0, .leaf = 1, .elements = 1, .sum_of_squares = 1};
  const VoteRecord::Norm other{.parameter = 1, .elements = 6, .sum_of_squares = 0};
  const double expected = std::sqrt(0x1p53 + 2);
  for (const auto& records : {std::vector{Of({large, other}), Of({first}), Of({second})},
                              std::vector{Of({second}), Of({large, first, other}), Of({})}}) {
    const auto outcome = DecideVote(records, kElements, 0);
    ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
    EXPECT_EQ(outcome->gradient_norm, expected);
  }
}

TEST(VoteTest, EachElementHasOneVoter) {
  const VoteRecord::Norm whole{.parameter = 1, .elements = 6, .sum_of_squares = 2};
  const VoteRecord::Norm part{.parameter = 0, .elements = 4, .sum_of_squares = 1};
  const VoteRecord::Norm rest{.parameter = 0, .leaf = 1, .elements = 6, .sum_of_squares = 1};
  VoteRecord::Norm twice = rest;
  twice.leaf = 0;
  VoteRecord::Norm beyond = whole;
  beyond.parameter = 2;
  VoteRecord::Norm negative = part;
  negative.elements = -4;
  const std::vector<std::pair<std::vector<VoteRecord::Norm>, std::string>> wrong = {
      {{whole, part}, "parameter 0 has 10 elements, and 4 were voted for"},
      {{part, rest}, "parameter 1 has 6 elements, and 0 were voted for"},
      {{whole, part, rest, part}, "parameter 0 has 10 elements, and more"},
      {{whole, whole, part, rest}, "parameter 1 has 6 elements, and more"},
      {{whole, part, rest, beyond}, "parameter 2 does not exist"},
      {{whole, part, twice}, "part 0 of parameter 0 was voted for twice"},
      {{whole, negative}, "parameter 0 has 10 elements, and more"}};
  for (const auto& [norms, why] : wrong) {
    const Status status = DecideVote({Of({}), Of(norms)}, kElements, 0).status();
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_NE(status.message().find(why), std::string::npos) << status.ToString();
  }
}

}  // namespace
}  // namespace heddle::runtime
