#include "comm/group/segment_regions.h"

#include <utility>

namespace heddle::comm {

MemberRegions::MemberRegions(int members) {
  const MutexLock lock(mutex_);
  foreign_.resize(static_cast<size_t>(members));
}

MemberRegions::Offer MemberRegions::OfferOwn(uint64_t region) {
  const MutexLock lock(mutex_);
  const auto [known, is_new] = own_.emplace(region, Offer::kNew);
  if (is_new) {
    return Offer::kNew;
  }
  if (known->second == Offer::kHandedOver) {
    known->second = Offer::kNew;
    return Offer::kHandedOver;
  }
  return known->second == Offer::kUsable ? Offer::kUsable : Offer::kRefused;
}

void MemberRegions::Withdraw(uint64_t region, bool handed_over) {
  const MutexLock lock(mutex_);
  if (handed_over) {
    own_[region] = Offer::kHandedOver;
  } else {
    own_.erase(region);
  }
}

void MemberRegions::Add(int member, uint64_t region, std::optional<Mapping> mapping) {
  const MutexLock lock(mutex_);
  foreign_[static_cast<size_t>(member)][region].mapping = std::move(mapping).value_or(Mapping());
}

void MemberRegions::Settle(int own, std::span<const SegmentPlace> places, bool usable) {
  const MutexLock lock(mutex_);
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].fresh != 1) {
      continue;
    }
    if (static_cast<int>(i) == own) {
      own_[places[i].region] = usable ? Offer::kUsable : Offer::kRefused;
    } else {
      foreign_[i][places[i].region].usable = usable;
    }
  }
}

bool MemberRegions::IsUsable(uint64_t own_region) const {
  const MutexLock lock(mutex_);
  const auto found = own_.find(own_region);
  return found != own_.end() && found->second == Offer::kUsable;
}

Result<std::byte*> MemberRegions::Find(int member, const SegmentPlace& place, size_t bytes) const {
  const MutexLock lock(mutex_);
  const auto& regions = foreign_[static_cast<size_t>(member)];
  const auto found = regions.find(place.region);
  if (found == regions.end()) {
    return DataLossError("memory that it has not shared");
  }
  if (!found->second.usable) {
    return static_cast<std::byte*>(nullptr);
  }
  const Mapping& mapping = found->second.mapping;
  if (place.offset > mapping.bytes() || bytes > mapping.bytes() - place.offset) {
    return DataLossError("a place outside of its shared memory");
  }
  return mapping.base() + place.offset;
}

}  // namespace heddle::comm
