/// \file
/// What a group of one host knows of its members' shared memory: offers, mappings, bounds.
#include "comm/group/segment_regions.h"

#include <array>

#include <gtest/gtest.h>

namespace heddle::comm {
namespace {

using Offer = MemberRegions::Offer;

constexpr int kOwn = 0;
constexpr int kOther = 1;

Mapping MapOf(size_t bytes) {
  const auto memory = MakeSharedMemory(bytes);
  EXPECT_TRUE(memory.ok()) << memory.status().ToString();
  auto mapping = Mapping::Of(memory->get(), bytes, false);
  EXPECT_TRUE(mapping.ok()) << mapping.status().ToString();
  return *std::move(mapping);
}

TEST(MemberRegionsTest, AnOwnRegionIsOfferedOnceAndThenWhatBecameOfIt) {
  for (const bool usable : {true, false}) {
    MemberRegions regions(2);
    EXPECT_EQ(regions.OfferOwn(7), Offer::kNew);
    EXPECT_EQ(regions.OfferOwn(7), Offer::kRefused) << "while another call offers it";
    EXPECT_FALSE(regions.IsUsable(7));
    const std::array<SegmentPlace, 2> places = {SegmentPlace{.region = 7, .offset = 0, .fresh = 1},
                                                SegmentPlace{}};
    regions.Settle(kOwn, places, usable);
    EXPECT_EQ(regions.OfferOwn(7), usable ? Offer::kUsable : Offer::kRefused);
    EXPECT_EQ(regions.IsUsable(7), usable);
    EXPECT_EQ(regions.OfferOwn(8), Offer::kNew) << "another region is another matter";
    EXPECT_FALSE(regions.IsUsable(9));
  }
}

TEST(MemberRegionsTest, ACallThatWentElsewhereIsOfferedAgain) {
  MemberRegions regions(2);
  EXPECT_EQ(regions.OfferOwn(7), Offer::kNew);
  regions.Withdraw(7, /*handed_over=*/false);
  EXPECT_EQ(regions.OfferOwn(7), Offer::kNew) << "nobody has its descriptor";
  regions.Withdraw(7, /*handed_over=*/true);
  EXPECT_EQ(regions.OfferOwn(7), Offer::kHandedOver);
  EXPECT_EQ(regions.OfferOwn(7), Offer::kRefused) << "that call has it now";
}

TEST(MemberRegionsTest, AnothersPlaceLiesWithinWhatItShared) {
  MemberRegions regions(2);
  constexpr size_t kBytes = 8192;
  regions.Add(kOther, 3, MapOf(kBytes));
  const auto find = [&](uint64_t region, uint64_t offset, size_t bytes) {
    return regions.Find(kOther, {.region = region, .offset = offset, .fresh = 0}, bytes);
  };
  ASSERT_TRUE(find(3, 0, 1).ok());
  EXPECT_EQ(*find(3, 0, 1), nullptr) << "nobody uses it before it is settled";
  const std::array<SegmentPlace, 2> old = {SegmentPlace{},
                                           SegmentPlace{.region = 3, .offset = 0, .fresh = 0}};
  regions.Settle(kOwn, old, true);
  EXPECT_EQ(*find(3, 0, 1), nullptr) << "a call that did not bring it settles nothing";
  const std::array<SegmentPlace, 2> fresh = {SegmentPlace{},
                                             SegmentPlace{.region = 3, .offset = 0, .fresh = 1}};
  regions.Settle(kOwn, fresh, true);
  ASSERT_TRUE(find(3, 0, kBytes).ok());
  std::byte* const base = *find(3, 0, kBytes);
  ASSERT_NE(base, nullptr);
  EXPECT_EQ(*find(3, 100, kBytes - 100), base + 100);
  EXPECT_EQ(*find(3, kBytes, 0), base + kBytes);
  for (const auto& [offset, bytes] : std::vector<std::pair<uint64_t, size_t>>{
           {0, kBytes + 1}, {1, kBytes}, {kBytes, 1}, {kBytes + 1, 0}, {UINT64_MAX, 2}}) {
    const auto outside = find(3, offset, bytes);
    EXPECT_EQ(outside.status().code(), StatusCode::kDataLoss) << offset << " " << bytes;
    EXPECT_EQ(outside.status().message(), "a place outside of its shared memory");
  }
  EXPECT_EQ(find(4, 0, 1).status().message(), "memory that it has not shared");
  EXPECT_EQ(regions.Find(kOwn, {.region = 3, .offset = 0, .fresh = 0}, 1).status().code(),
            StatusCode::kDataLoss)
      << "each member's are its own";
}

TEST(MemberRegionsTest, WhatCannotBeMappedIsNotUsed) {
  MemberRegions regions(2);
  regions.Add(kOther, 3, std::nullopt);
  const SegmentPlace place{.region = 3, .offset = 0, .fresh = 1};
  regions.Settle(kOwn, std::array<SegmentPlace, 2>{SegmentPlace{}, place}, false);
  const auto found = regions.Find(kOther, place, 1);
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  EXPECT_EQ(*found, nullptr);
}

}  // namespace
}  // namespace heddle::comm
