// What the hash of a moved piece tells apart.
#include "elastic/worker/trainer/chunk_hash.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/bytes.h"

namespace heddle::elastic {
namespace {

using testing::SizeIs;

program::Transfer SomeBox() {
  return {.parameter = 3,
          .role = program::StateRole::kExpAvg,
          .box = {.offset = {0, 8}, .extent = {4, 8}},
          .source = "a",
          .target = "b"};
}

TEST(ChunkHashTest, EveryPieceHasOneAndAChangedByteIsSeenInItsOwn) {
  const MovedState state{.generation = 2, .step = 7};
  EXPECT_EQ(PiecesOf(0), 1);
  EXPECT_EQ(PiecesOf(kPieceBytes), 1);
  EXPECT_EQ(PiecesOf(kPieceBytes + 1), 2);
  Bytes bytes(static_cast<size_t>(2 * kPieceBytes + 5));
  const auto before = state.Hashes(SomeBox(), bytes);
  ASSERT_THAT(before, SizeIs(3));
  EXPECT_NE(before[0], before[1]) << "of the same bytes at another place";
  EXPECT_FALSE(Compare(before, state.Hashes(SomeBox(), bytes)));
  bytes[static_cast<size_t>(kPieceBytes) + 9] = std::byte{1};
  bytes.back() = std::byte{0x80};
  const auto difference = Compare(before, state.Hashes(SomeBox(), bytes));
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->piece, 1U);
  EXPECT_EQ(difference->expected, before[1]);
  EXPECT_NE(difference->found, before[1]);
  EXPECT_EQ(difference->pieces, 2);
}

TEST(ChunkHashTest, TheSameBytesOfAnotherStateTensorOrPlaceHaveAnotherHash) {
  const Bytes bytes(256);
  std::set<uint64_t> hashes;
  const auto add = [&](const MovedState& state, const program::Transfer& transfer) {
    hashes.insert(state.Hashes(transfer, bytes).at(0));
  };
  program::Transfer transfer = SomeBox();
  add({.generation = 2, .step = 7}, transfer);
  add({.generation = 2, .step = 8}, transfer);
  add({.generation = 3, .step = 7}, transfer);
  transfer.parameter = 4;
  add({.generation = 2, .step = 7}, transfer);
  transfer.role = program::StateRole::kExpAvgSq;
  add({.generation = 2, .step = 7}, transfer);
  transfer.box.offset = {8, 0};
  add({.generation = 2, .step = 7}, transfer);
  transfer.box.extent = {8, 4};
  add({.generation = 2, .step = 7}, transfer);
  EXPECT_THAT(hashes, SizeIs(7));
  transfer.target = "c";
  add({.generation = 2, .step = 7}, transfer);
  EXPECT_THAT(hashes, SizeIs(7)) << "to whom it goes is no part of it";
}

TEST(ChunkHashTest, PeopleReadWhatItIsOf) {
  EXPECT_EQ(NameOf("layers.0.mlp.gate", SomeBox(), 1, 3),
            "exp_avg of layers.0.mlp.gate [0:4, 8:16], piece 2 of 3");
}

}  // namespace
}  // namespace heddle::elastic
