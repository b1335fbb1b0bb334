// What two members in different calls are told, from the bits that travel.
#include "comm/message/call_signature.h"

#include <gtest/gtest.h>

namespace heddle::comm {
namespace {

std::string Said(const CallSignature& one, const CallSignature& other) {
  return DescribeConflict("a", EncodeSignature(one), "b", EncodeSignature(other));
}

// From the top: kind (4 bits), element type (3), operation (2), urgency (1), detail (12).
TEST(CallSignatureTest, HasTheBitsOfTheWire) {
  EXPECT_EQ(EncodeSignature({.kind = CallKind::kAllReduce,
                             .dtype = DType::kF32,
                             .op = ReduceOp::kMax,
                             .counts = 0x1234}),
            3U << 18 | static_cast<uint32_t>(DType::kF32) << 15 |
                static_cast<uint32_t>(ReduceOp::kMax) << 13 | 0x234U);
  EXPECT_EQ(EncodeSignature({.kind = CallKind::kBarrier, .urgent = true}),
            EncodeSignature({.kind = CallKind::kBarrier}) | 1U << 12);
  EXPECT_EQ(EncodeSignature({.kind = CallKind::kBarrier, .counts = uint64_t{5} << 32 | 3}),
            EncodeSignature({.kind = CallKind::kBarrier, .counts = 6}))
      << "both halves of the hash";
  const uint32_t broadcast =
      EncodeSignature({.kind = CallKind::kBroadcast, .root = 3, .counts = 5});
  EXPECT_EQ(broadcast & 0x1FFFU, 3U << 3 | 5U);
  EXPECT_EQ(EncodeSignature({.kind = CallKind::kBroadcast, .root = 3 + 512, .counts = 5 + 8}),
            broadcast);
  for (const CallKind kind : {CallKind::kReduceTree, CallKind::kBroadcast}) {
    const uint32_t most = EncodeSignature(
        {.kind = kind, .op = ReduceOp::kMin, .urgent = true, .root = ~0U, .counts = ~uint64_t{0}});
    EXPECT_LT(most, 1U << kSignatureBits);
    EXPECT_EQ(most >> 18, static_cast<uint32_t>(kind)) << "large numbers stay in their field";
    EXPECT_EQ(SignatureOf(SpaceOf(most) | uint64_t{63} << 58 | 0xFFFFFFFFF), most);
  }
}

TEST(CallSignatureTest, ACallHasItsName) {
  const char* const names[] = {"barrier",
                               "all-gather of bytes",
                               "all-reduce",
                               "reduce-scatter",
                               "all-gather",
                               "broadcast",
                               "all-to-all",
                               "reproducible reduction",
                               "reproducible reduce-scatter"};
  for (uint32_t kind = 1; kind <= 9; ++kind) {
    EXPECT_EQ(CallName(kind << 18), names[kind - 1]);
  }
  for (const uint32_t kind : {0U, 10U, 15U}) {
    EXPECT_EQ(CallName(kind << 18), "something unknown") << kind;
  }
}

TEST(CallSignatureTest, AConflictIsTheFirstFieldThatDiffers) {
  CallSignature other{
      .kind = CallKind::kAllReduce, .dtype = DType::kI64, .op = ReduceOp::kMin, .counts = 7};
  EXPECT_EQ(Said({.kind = CallKind::kBarrier}, other), "a calls barrier, b calls all-reduce");
  CallSignature own{.kind = CallKind::kAllReduce, .dtype = DType::kF32};
  EXPECT_EQ(Said(own, other), "a calls all-reduce with dtype fp32, b with dtype int64");
  own.dtype = DType::kI64;
  EXPECT_EQ(Said(own, other), "a calls all-reduce with op sum, b with op min");
  own.op = ReduceOp::kMin;
  own.urgent = true;
  EXPECT_EQ(Said(own, other), "a calls all-reduce as urgent, b as bulk");
  own.urgent = false;
  EXPECT_EQ(Said(own, other), "a and b call all-reduce with different counts (or groups)");
  EXPECT_EQ(Said({.kind = CallKind::kBroadcast, .root = 2, .counts = 1},
                 {.kind = CallKind::kBroadcast, .root = 1, .counts = 2}),
            "a calls broadcast with root 2, b with root 1");
  EXPECT_EQ(Said({.kind = CallKind::kBroadcast, .root = 2, .counts = 1},
                 {.kind = CallKind::kBroadcast, .root = 2, .counts = 2}),
            "a and b call broadcast with different counts (or groups)");
}

TEST(CallSignatureTest, WhatANetworkMadeUpIsDescribedToo) {
  EXPECT_EQ(DescribeConflict("a", 3U << 18, "b", 3U << 18 | 7U << 15),
            "a calls all-reduce with dtype fp32, b with dtype 7");
  EXPECT_EQ(DescribeConflict("a", 3U << 18, "b", 3U << 18 | 3U << 13),
            "a calls all-reduce with op sum, b with op unknown");
}

TEST(CallSignatureTest, PhasesTellCollectivesFromTheRest) {
  constexpr uint64_t kPhase = uint64_t{1} << 58;
  EXPECT_FALSE(IsCollective(0)) << "a user's message";
  EXPECT_FALSE(IsCollective(kPhase - 1));
  EXPECT_TRUE(IsCollective(kPhase));
  EXPECT_TRUE(IsCollective(62 * kPhase));
  EXPECT_FALSE(IsCollective(63 * kPhase));
  EXPECT_FALSE(IsForming(63 * kPhase - 1));
  EXPECT_TRUE(IsForming(63 * kPhase));
  EXPECT_TRUE(IsForming(63 * kPhase + 15));
  EXPECT_FALSE(IsForming(63 * kPhase + 16));
}

}  // namespace
}  // namespace heddle::comm
