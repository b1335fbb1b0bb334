// Buffers that peers may map: which of them holds a range of bytes, what becomes of their pages,
// and who is told when they go.
#include "comm/transport/shared_memory.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "metrics/registry.h"

namespace heddle::comm {
namespace {

using testing::HasSubstr;

const size_t kPage = static_cast<size_t>(::sysconf(_SC_PAGESIZE));

struct CountedUse final : RegionUse {
  void End() override { ++ended; }
  int ended = 0;
};

TEST(SharedMemoryTest, MemoryHasItsSizeForGood) {
  const auto memory = MakeSharedMemory(3 * kPage);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(*CheckSharedMemory(memory->get(), 3 * kPage), 3 * kPage);
  EXPECT_NE(::ftruncate(memory->get(), static_cast<off_t>(kPage)), 0) << "it may not shrink";
  EXPECT_NE(::ftruncate(memory->get(), static_cast<off_t>(4 * kPage)), 0) << "or grow";
  EXPECT_NE(::fcntl(memory->get(), F_ADD_SEALS, F_SEAL_WRITE), 0) << "nor be sealed otherwise";
  struct stat info {};
  ASSERT_EQ(::fstat(memory->get(), &info), 0);
  EXPECT_GE(static_cast<size_t>(info.st_blocks) * 512, 3 * kPage) << "all of it is there now";
}

TEST(SharedMemoryTest, AFileOfNoBytesIsRefused) {
  const UniqueFd empty(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::fcntl(empty.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_EQ(CheckSharedMemory(empty.get(), 0).status().code(), StatusCode::kDataLoss);
}

TEST(SharedMemoryTest, TheLimitOfFilesSizesIsSaidBeforeItKills) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 2 * kPage, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto fits = MakeSharedMemory(2 * kPage);
  const auto large = MakeSharedMemory(2 * kPage + 1);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_TRUE(fits.ok()) << fits.status().ToString();
  EXPECT_EQ(large.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(large.status().message(), HasSubstr("ulimit -f"));
}

TEST(MappingTest, BelongsToWhomItWasMovedTo) {
  const auto memory = MakeSharedMemory(kPage);
  Mapping one = *Mapping::Of(memory->get(), kPage, true);
  std::byte* const base = one.base();
  Mapping other(std::move(one));
  EXPECT_EQ(one.base(), nullptr);
  EXPECT_EQ(one.bytes(), 0U);
  EXPECT_EQ(other.base(), base);
  EXPECT_EQ(other.bytes(), kPage);
  one = std::move(other);
  EXPECT_EQ(one.base(), base);
  EXPECT_EQ(one.bytes(), kPage);
  base[5] = std::byte{9};
  const Mapping again = *Mapping::Of(memory->get(), kPage, false);
  EXPECT_EQ(again.base()[5], std::byte{9}) << "the same pages";
  const auto refused = Mapping::Of(-1, kPage, false);
  EXPECT_THAT(refused.status().message(), HasSubstr("mapping " + std::to_string(kPage) + " bytes"));
}

class SharedRegionsTest : public testing::Test {
 protected:
  SharedBuffer Allocate(size_t bytes) {
    auto buffer = regions_->Allocate(bytes);
    EXPECT_TRUE(buffer.ok()) << buffer.status().ToString();
    return *std::move(buffer);
  }
  bool Knows(const std::byte* from, size_t bytes) const {
    return regions_->Find({from, bytes}) != nullptr;
  }

  metrics::Registry registry_;
  const std::shared_ptr<SharedRegions> regions_ = std::make_shared<SharedRegions>(&registry_);
};

TEST_F(SharedRegionsTest, ABufferIsAsLargeAsWasAskedInWholePages) {
  EXPECT_EQ(regions_->Allocate(0).status().code(), StatusCode::kInvalidArgument);
  for (const auto& [bytes, whole] :
       {std::pair(size_t{1}, kPage), std::pair(kPage, kPage), std::pair(kPage + 1, 2 * kPage)}) {
    const SharedBuffer buffer = Allocate(bytes);
    EXPECT_EQ(buffer.bytes().size(), bytes);
    EXPECT_EQ(regions_->Find(buffer.bytes())->mapping.bytes(), whole);
  }
}

TEST_F(SharedRegionsTest, ARangeIsFoundWhereARegionHoldsAllOfIt) {
  const SharedBuffer one = Allocate(2 * kPage);
  const SharedBuffer other = Allocate(kPage);
  const std::byte* const base = one.bytes().data();
  EXPECT_TRUE(Knows(base, 2 * kPage));
  EXPECT_TRUE(Knows(base + 2 * kPage - 1, 1));
  EXPECT_TRUE(Knows(base + 2 * kPage, 0));
  EXPECT_FALSE(Knows(base, 2 * kPage + 1));
  EXPECT_FALSE(Knows(base + 1, 2 * kPage));
  EXPECT_FALSE(Knows(reinterpret_cast<const std::byte*>(kPage), 1)) << "before all of them";
  const std::byte own{};
  EXPECT_FALSE(Knows(&own, 1));
  const auto found = regions_->Find(one.bytes());
  EXPECT_EQ(found->mapping.base(), base);
  EXPECT_NE(found->id, 0U);
  EXPECT_EQ(regions_->Find(other.bytes())->id, found->id + 1) << "each has a number of its own";
}

// A peer may keep its mapping: it has empty pages then, which the machine has back.
TEST_F(SharedRegionsTest, ABufferThatGoesGivesItsPagesBackAndTellsItsUses) {
  const auto use = std::make_shared<CountedUse>();
  const auto expired = std::make_shared<CountedUse>();
  UniqueFd memory;
  const std::byte* base = nullptr;
  {
    const SharedBuffer buffer = Allocate(kPage);
    base = buffer.bytes().data();
    buffer.bytes()[0] = std::byte{7};
    const auto region = regions_->Find(buffer.bytes());
    region->AddUse(use);
    {
      const auto gone = std::make_shared<CountedUse>();
      region->AddUse(gone);
    }
    region->AddUse(expired);
    const MutexLock lock(region->mutex);
    EXPECT_EQ(region->uses.size(), 2U) << "those that are gone are forgotten";
    memory.Reset(::dup(region->memory.get()));
  }
  EXPECT_EQ(use->ended, 1);
  EXPECT_EQ(expired->ended, 1);
  EXPECT_FALSE(Knows(base, 1));
  const Mapping peers = *Mapping::Of(memory.get(), kPage, false);
  EXPECT_EQ(peers.base()[0], std::byte{0});
  struct stat info {};
  ASSERT_EQ(::fstat(memory.get(), &info), 0);
  EXPECT_EQ(info.st_size, static_cast<off_t>(kPage)) << "it is as long as it was";
}

TEST_F(SharedRegionsTest, WhatIsMadePrivateKeepsItsBytesAndNobodyElseWritesIt) {
  const SharedBuffer buffer = Allocate(4 * kPage);
  const std::span<std::byte> bytes = buffer.bytes();
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(i / 7);
  }
  const auto region = regions_->Find(bytes);
  const auto use = std::make_shared<CountedUse>();
  region->AddUse(use);
  const Mapping peers = *Mapping::Of(region->memory.get(), 4 * kPage, false);
  // From the last byte of the second page to the first of the third.
  ASSERT_TRUE(regions_->Privatise(*region, bytes.subspan(2 * kPage - 1, 2)).ok());
  EXPECT_EQ(use->ended, 1);
  EXPECT_EQ(regions_->Find(bytes), nullptr) << "it is ordinary memory now";
  for (size_t i = 0; i < bytes.size(); ++i) {
    ASSERT_EQ(bytes[i], static_cast<std::byte>(i / 7)) << i;
  }
  for (size_t page = 0; page < 4; ++page) {
    peers.base()[page * kPage] = std::byte{0xEE};
    EXPECT_EQ(bytes[page * kPage] == std::byte{0xEE}, page == 0 || page == 3) << page;
  }
}

TEST_F(SharedRegionsTest, WhatIsRefusedIsCountedByItsReason) {
  ASSERT_EQ(registry_.Collect().size(), 1U) << "from 0 on";
  regions_->CountRefused(StatusCode::kResourceExhausted);
  regions_->CountRefused(StatusCode::kResourceExhausted);
  SharedRegions(nullptr).CountRefused(StatusCode::kResourceExhausted);  // Counts nothing.
  double counted = 0;
  for (const auto& family : registry_.Collect()) {
    for (const auto& sample : family.samples) {
      EXPECT_EQ(family.name, "heddle_comm_refused_buffers_total");
      EXPECT_EQ(sample.labels.at("reason"),
                std::string(StatusCodeName(StatusCode::kResourceExhausted)));
      counted += sample.value;
    }
  }
  EXPECT_EQ(counted, 2);
}

/// Imports `bytes` of a file of four pages, from `offset` on, at `address`.
Result<SharedBuffer> Import(SharedRegions& regions,
                            std::byte* address,
                            size_t bytes,
                            uint64_t offset) {
  const UniqueFd file(::memfd_create("device", MFD_CLOEXEC));
  EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(4 * kPage)), 0);
  return regions.Import({.fd = file.get(), .offset = offset, .bytes = {address, bytes}});
}

class DeviceRegionsTest : public ::testing::Test {
 protected:
  /// Addresses that are nowhere mapped.
  std::byte* const address_ = reinterpret_cast<std::byte*>(uintptr_t{1} << 46);
  const std::shared_ptr<SharedRegions> regions_ = std::make_shared<SharedRegions>(nullptr);
};

TEST_F(DeviceRegionsTest, OnlyWhatIsInTheDmaBufIsImported) {
  EXPECT_TRUE(Import(*regions_, address_, 4 * kPage, 0).ok());
  EXPECT_TRUE(Import(*regions_, address_, kPage, 3 * kPage).ok());
  const struct {
    size_t bytes;
    uint64_t offset;
  } wrong[] = {{0, 0},         {4 * kPage + 1, 0}, {kPage + 1, 3 * kPage},
               {1, 4 * kPage}, {1, 5 * kPage},     {kPage, UINT64_MAX - kPage + 1}};
  for (const auto& [bytes, offset] : wrong) {
    EXPECT_EQ(Import(*regions_, address_, bytes, offset).status().code(),
              StatusCode::kInvalidArgument)
        << bytes << " at " << offset;
  }
  EXPECT_EQ(regions_->Import({.fd = -1, .bytes = {address_, kPage}}).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(DeviceRegionsTest, TheHostKnowsWhatItMustNotTouch) {
  EXPECT_FALSE(regions_->TouchesDevice({address_, kPage}));
  auto buffer = Import(*regions_, address_ + kPage, kPage, 0);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(regions_->Find(buffer->bytes()), nullptr) << "peers of this host cannot map it";
  ASSERT_NE(regions_->FindAny(buffer->bytes()), nullptr);
  EXPECT_TRUE(regions_->FindAny(buffer->bytes())->in_device());
  EXPECT_EQ(regions_->FindAny({address_ + kPage, kPage + 1}), nullptr);
  EXPECT_TRUE(regions_->TouchesDevice({address_ + 2 * kPage - 1, 2})) << "past its end";
  EXPECT_TRUE(regions_->TouchesDevice({address_, kPage + 1})) << "before its begin";
  EXPECT_FALSE(regions_->TouchesDevice({address_, kPage}));
  EXPECT_FALSE(regions_->TouchesDevice({address_ + 2 * kPage, kPage}));
  EXPECT_FALSE(regions_->TouchesDevice({address_ + kPage, 0}));
  buffer = UnavailableError("freed");
  EXPECT_FALSE(regions_->TouchesDevice({address_ + kPage, kPage}));
}

TEST_F(DeviceRegionsTest, AnAddressIsImportedAgainOnlyAfterItsBufferIsGone) {
  auto use = std::make_shared<CountedUse>();
  auto buffer = Import(*regions_, address_, 2 * kPage, 0);
  ASSERT_TRUE(buffer.ok());
  regions_->FindAny(buffer->bytes())->AddUse(use);
  for (const size_t at : {size_t{0}, kPage}) {
    EXPECT_EQ(Import(*regions_, address_ + at, 2 * kPage, 0).status().code(),
              StatusCode::kFailedPrecondition);
  }
  EXPECT_EQ(use->ended, 0);
  EXPECT_NE(regions_->FindAny(buffer->bytes()), nullptr) << "a refusal changes nothing";
  buffer = UnavailableError("freed");
  EXPECT_EQ(use->ended, 1);
  buffer = Import(*regions_, address_, kPage, 0);
  ASSERT_TRUE(buffer.ok()) << buffer.status().ToString();
  EXPECT_NE(regions_->FindAny(buffer->bytes()), nullptr);
}

}  // namespace
}  // namespace heddle::comm
