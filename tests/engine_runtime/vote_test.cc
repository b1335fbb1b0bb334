/// \file
/// Goal: what workers tell each other in a vote arrives as it was said, and all decide alike.
#include "engine/runtime/vote.h"

#include <gtest/gtest.h>

namespace heddle::runtime {
namespace {

VoteRecord Record(bool stop, bool busy) {
  return {.step = 7, .stop = stop, .busy = busy, .norms = {}, .losses = {}};
}

TEST(VoteTest, RecordsAreReadAsTheyWereWritten) {
  for (const bool stop : {false, true}) {
    for (const bool busy : {false, true}) {
      VoteRecord record = Record(stop, busy);
      record.norms.push_back({.parameter = 3, .sum_of_squares = 2.5});
      record.losses.push_back({.microbatch = 1, .loss = 0.5});
      const Bytes bytes = EncodeVote(record);
      const auto read = DecodeVote(bytes);
      ASSERT_TRUE(read.ok()) << read.status().ToString();
      EXPECT_EQ(read->step, 7);
      EXPECT_EQ(read->stop, stop);
      EXPECT_EQ(read->busy, busy);
      ASSERT_EQ(read->norms.size(), 1U);
      EXPECT_EQ(read->norms[0].sum_of_squares, 2.5);
      ASSERT_EQ(read->losses.size(), 1U);
      EXPECT_EQ(read->losses[0].loss, 0.5);
      EXPECT_FALSE(DecodeVote(std::span(bytes).first(bytes.size() - 1)).ok());
    }
  }
}

TEST(VoteTest, WhatOneSaysHoldsForAll) {
  const auto decide = [](const std::vector<VoteRecord>& records) {
    const auto outcome = DecideVote(records, 0, 0);
    EXPECT_TRUE(outcome.ok()) << outcome.status().ToString();
    return *outcome;
  };
  EXPECT_FALSE(decide({Record(false, false), Record(false, false)}).stop);
  EXPECT_FALSE(decide({Record(false, false), Record(false, false)}).busy);
  EXPECT_FALSE(decide({Record(true, false), Record(false, false)}).busy);
  EXPECT_TRUE(decide({Record(false, false), Record(false, true)}).busy);
  EXPECT_FALSE(decide({Record(false, false), Record(false, true)}).stop);
  EXPECT_TRUE(decide({Record(false, true), Record(true, false)}).stop);
}

}  // namespace
}  // namespace heddle::runtime
