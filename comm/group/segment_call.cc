// The bulk of a call: members bring memory that the others map once, and read and write where it
// lies.
#include "comm/group/segment_call.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/system/unique_fd.h"
#include "comm/group/segment_entry.h"
#include "comm/message/channel.h"

namespace heddle::comm {

namespace {

/// Small calls are counted together.
constexpr int64_t kCountBytes = int64_t{1} << 20;

}  // namespace

Result<bool> SegmentCall::EnterSmall(uint64_t shape, std::span<const std::byte> data) {
  data_ = data;
  const SegmentAnnouncement announcement{.shape = ShapeOf(shape), .data = data};
  return SegmentEntry(*this, announcement).Enter();
}

Result<bool> SegmentCall::EnterBulk(uint64_t shape,
                                    std::span<const std::byte> bulk,
                                    std::span<const size_t> sizes,
                                    std::span<std::byte*> places) {
  place_ = PlaceOf(bulk);
  const SegmentAnnouncement announcement{.shape = ShapeOf(shape), .place = place_};
  HEDDLE_ASSIGN_OR_RETURN(const bool entered, SegmentEntry(*this, announcement).Enter());
  if (!entered) {
    if (place_.fresh == 1) {  // It is offered again with the next call.
      group_.member_regions_.Withdraw(place_.region, handed_over_);
    }
    return false;
  }
  const Status status = Locate(sizes, places);
  return status.ok() ? Result<bool>(true) : Result<bool>(Fail(status));
}

SegmentPlace SegmentCall::PlaceOf(std::span<const std::byte> bulk) {
  region_ = bulk.empty() ? nullptr : group_.regions_->Find(bulk);
  if (region_ == nullptr) {
    return {};
  }
  SegmentPlace place{.region = region_->id,
                     .offset = static_cast<uint64_t>(bulk.data() - region_->mapping.base())};
  switch (group_.member_regions_.OfferOwn(region_->id)) {
    case MemberRegions::Offer::kUsable:
      return place;
    case MemberRegions::Offer::kRefused:
      return {};
    case MemberRegions::Offer::kNew:
      HandOver();
      break;
    case MemberRegions::Offer::kHandedOver:
      break;
  }
  place.fresh = 1;
  return place;
}

// A member that does not get the region's descriptor refuses it, and then no member uses it.
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
  std::array<SegmentPlace, kMaxSharing> announced{};
  bool fresh = false;
  for (int member = 0; member < size(); ++member) {
    const auto i = static_cast<size_t>(member);
    // Read once: what is checked is what is used.
    std::memcpy(&announced[i], LineOf(member).data.data(), sizeof(SegmentPlace));
    fresh = fresh || announced[i].fresh == 1;
  }
  announced[static_cast<size_t>(position())] =
      place_;  // What lies in the segment others may have overwritten.
  const auto all = std::span<const SegmentPlace>(announced).first(static_cast<size_t>(size()));
  if (fresh) {
    HEDDLE_RETURN_IF_ERROR(MapNew(all, sizes));
  }
  for (size_t i = 0; i < all.size(); ++i) {
    places[i] = nullptr;
    if (all[i].region == 0) {
      continue;
    }
    if (static_cast<int>(i) != position()) {
      const auto found = group_.member_regions_.Find(static_cast<int>(i), all[i], sizes[i]);
      if (!found.ok()) {
        return DataLossError("{} names {}", group_.names_[i], found.status().message());
      }
      places[i] = *found;
    } else if (group_.member_regions_.IsUsable(all[i].region)) {
      places[i] = region_->mapping.base() + all[i].offset;
    }
  }
  return Status::Ok();
}

// The region that `member` offers in this call, with the reason in the log when it cannot be had.
std::optional<Mapping> SegmentCall::MapRegion(int member, uint64_t region, size_t bytes) const {
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
  return mapping.ok() ? std::optional<Mapping>(*std::move(mapping)) : std::nullopt;
}

bool SegmentCall::AnyRefused() const {
  for (int member = 0; member < size(); ++member) {
    if (BlockOf(member).refused.load() != 0) {
      return true;
    }
  }
  return false;
}

// Maps the regions offered in this call; if one member cannot, no member uses them.
Status SegmentCall::MapNew(std::span<const SegmentPlace> places, std::span<const size_t> sizes) {
  bool refused = false;
  for (size_t i = 0; i < places.size(); ++i) {
    if (static_cast<int>(i) == position() || places[i].fresh != 1) {
      continue;
    }
    std::optional<Mapping> mapping = MapRegion(static_cast<int>(i), places[i].region, sizes[i]);
    refused = refused || !mapping.has_value();
    group_.member_regions_.Add(static_cast<int>(i), places[i].region, std::move(mapping));
  }
  BlockOf(position()).refused.store(refused ? 1 : 0);
  Arrive();
  HEDDLE_RETURN_IF_ERROR(WaitAll());
  refused = refused || AnyRefused();
  // All members have read the answers before any writes its next one, because a call between has
  // phases.
  Arrive();
  HEDDLE_RETURN_IF_ERROR(WaitAll());
  group_.member_regions_.Settle(position(), places, !refused);
  return Status::Ok();
}

const std::byte* SegmentCall::SmallData(int member) const {
  if (member == position()) {
    return data_.data();
  }
  const SegmentLine& line = LineOf(member);
  return data_.size() > line.data.size() ? group_.SmallStage(index_, member, call_)
                                         : line.data.data();
}

void SegmentCall::Count(int member, int64_t sent, int64_t received) {
  if (member != position()) {
    group_.channels_[static_cast<size_t>(member)]->CountShared(sent, received);
  }
}

void SegmentCall::CountSmall(int64_t bytes) {
  int64_t& uncounted = known().uncounted;
  uncounted += bytes;
  if (uncounted >= kCountBytes) {
    for (int member = 0; member < size(); ++member) {
      Count(member, uncounted, uncounted);
    }
    uncounted = 0;
  }
}

Status SegmentCall::Pace(int64_t sent, int64_t received) {
  const ChannelOptions& link =
      group_.channels_[position() == 0 ? 1 : 0]->options();  // The link is the same for all peers.
  if (!link.outgoing->limited()) {
    return Status::Ok();
  }
  const Time began = Now();
  link.outgoing->Charge(static_cast<size_t>(sent), began);
  link.incoming->Charge(static_cast<size_t>(received), began);
  const auto paid = [&] {
    const Time now = Now();
    return std::max(link.outgoing->ReadyAt(TrafficClass::kBulk, now),
                    link.incoming->ReadyAt(TrafficClass::kBulk, now)) <= now;
  };
  return Wait(position(), paid, std::chrono::microseconds(500));
}

}  // namespace heddle::comm
