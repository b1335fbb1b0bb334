// The bulk of a call: members bring memory that the others map once, and read and write where it
// lies.
#include <array>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/system/unique_fd.h"
#include "comm/group/segment.h"
#include "comm/message/channel.h"

namespace heddle::comm {

Result<bool> SegmentCall::EnterBulk(uint64_t shape, std::span<const std::byte> bulk) {
  shape_ = shape;
  place_ = PlaceOf(bulk);
  const Result<bool> entered = Enter();
  if (entered.ok() && !*entered && place_.fresh == 1) {
    // Nobody has mapped it: it is offered again with the next call.
    const MutexLock lock(group_.mutex_);
    if (handed_over_) {
      group_.offered_[place_.region] = GroupSegment::Offer::kHandedOver;
    } else {
      group_.offered_.erase(place_.region);
    }
  }
  return entered;
}

SegmentPlace SegmentCall::PlaceOf(std::span<const std::byte> bulk) {
  region_ = bulk.empty() ? nullptr : group_.regions_->Find(bulk);
  if (region_ == nullptr) {
    return {};
  }
  SegmentPlace place{.region = region_->id,
                     .offset = static_cast<uint64_t>(bulk.data() - region_->mapping.base())};
  bool handed_over = false;
  {
    const MutexLock lock(group_.mutex_);
    const auto [known, is_new] =
        group_.offered_.emplace(region_->id, GroupSegment::Offer::kOffered);
    handed_over = !is_new && known->second == GroupSegment::Offer::kHandedOver;
    if (!is_new && !handed_over) {
      return known->second == GroupSegment::Offer::kUsable ? place : SegmentPlace{};
    }
    known->second = GroupSegment::Offer::kOffered;
  }
  if (!handed_over) {
    HandOver();
  }
  place.fresh = 1;
  return place;
}

// Who does not get the own region's descriptor refuses it, and then nobody uses it.
void SegmentCall::HandOver() {
  for (const auto& channel : group_.channels_) {
    if (channel == nullptr) {
      continue;
    }
    const Status status = channel->SendDescriptor(region_->id, region_->memory.get());
    handed_over_ = handed_over_ && status.ok();
    if (!status.ok() && !group_.broken_.load()) {
      LogWarning("a shared buffer of {} bytes is not handed to {}, and is copied instead: {}",
                 region_->mapping.bytes(), channel->options().peer_name, status.message());
    }
  }
}

Status SegmentCall::Locate(std::span<const size_t> sizes, std::span<std::byte*> places) {
  const Status status = LocateAll(sizes, places);
  return status.ok() || entry_ == Entry::kFailed ? status : Fail(status);
}

Status SegmentCall::LocateAll(std::span<const size_t> sizes, std::span<std::byte*> places) {
  std::array<SegmentPlace, kMostSharing> announced{};
  bool fresh = false;
  for (int member = 0; member < size(); ++member) {
    const auto i = static_cast<size_t>(member);
    // Read once: what is checked is what is used.
    std::memcpy(&announced[i], LineOf(slot_, member, call_).data.data(), sizeof(SegmentPlace));
    fresh = fresh || announced[i].fresh == 1;
  }
  announced[static_cast<size_t>(position())] =
      place_;  // What lies in the segment others may have overwritten.
  const auto all = std::span<const SegmentPlace>(announced).first(static_cast<size_t>(size()));
  if (fresh) {
    HEDDLE_RETURN_IF_ERROR(MapNew(all, sizes));
  }
  const MutexLock lock(group_.mutex_);
  for (size_t i = 0; i < all.size(); ++i) {
    places[i] = nullptr;
    if (all[i].region == 0) {
      continue;
    }
    if (static_cast<int>(i) == position()) {
      places[i] = group_.offered_[all[i].region] == GroupSegment::Offer::kUsable
                      ? region_->mapping.base() + all[i].offset
                      : nullptr;
      continue;
    }
    const auto found = group_.foreign_[i].find(all[i].region);
    if (found == group_.foreign_[i].end()) {
      return DataLossError("{} names memory that it has not shared", group_.names_[i]);
    }
    const size_t room = found->second.mapping.bytes();
    if (!found->second.usable) {
      continue;
    }
    if (all[i].offset > room || sizes[i] > room - all[i].offset) {
      return DataLossError("{} names a place outside of its shared memory", group_.names_[i]);
    }
    places[i] = found->second.mapping.base() + all[i].offset;
  }
  return Status::Ok();
}

// The region that `member` offers in this call, with the reason in the log when it cannot be had.
Result<Mapping> SegmentCall::MapRegion(int member, uint64_t region, size_t bytes) const {
  const auto i = static_cast<size_t>(member);
  const auto map = [&]() -> Result<Mapping> {
    HEDDLE_ASSIGN_OR_RETURN(const UniqueFd memory, group_.channels_[i]->TakeDescriptor(region));
    HEDDLE_ASSIGN_OR_RETURN(const size_t whole, CheckSharedMemory(memory.get(), 1));
    return Mapping::Of(memory.get(), whole, true);
  };
  Result<Mapping> mapping = map();
  if (!mapping.ok() && !group_.broken_.load()) {
    LogWarning("{} bytes in a shared buffer of {} are copied from now on, among {} workers: {}",
               bytes, group_.names_[i], size(), mapping.status().message());
    group_.regions_->CountRefused(mapping.status().code());
  }
  return mapping;
}

bool SegmentCall::AnyRefused() const {
  for (int member = 0; member < size(); ++member) {
    if (group_.Block(slot_, member).refused.load() != 0) {
      return true;
    }
  }
  return false;
}

// Maps what was offered in this call; if one member cannot, nobody uses it.
Status SegmentCall::MapNew(std::span<const SegmentPlace> places, std::span<const size_t> sizes) {
  bool refused = false;
  for (size_t i = 0; i < places.size(); ++i) {
    if (static_cast<int>(i) == position() || places[i].fresh != 1) {
      continue;
    }
    Result<Mapping> mapping = MapRegion(static_cast<int>(i), places[i].region, sizes[i]);
    refused = refused || !mapping.ok();
    const MutexLock lock(group_.mutex_);
    GroupSegment::Foreign& foreign = group_.foreign_[i][places[i].region];
    foreign.mapping = mapping.ok() ? *std::move(mapping) : Mapping();
  }
  group_.Block(slot_, position()).refused.store(refused ? 1 : 0);
  Arrive();
  HEDDLE_RETURN_IF_ERROR(WaitAll());
  refused = refused || AnyRefused();
  // Everyone has read the answers before anyone writes its next one: a call between has phases.
  Arrive();
  HEDDLE_RETURN_IF_ERROR(WaitAll());
  const MutexLock lock(group_.mutex_);
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].fresh != 1) {
      continue;
    }
    if (static_cast<int>(i) == position()) {
      group_.offered_[places[i].region] =
          refused ? GroupSegment::Offer::kRefused : GroupSegment::Offer::kUsable;
    } else {
      group_.foreign_[i][places[i].region].usable = !refused;
    }
  }
  return Status::Ok();
}

}  // namespace heddle::comm
