/// \file
/// Whether memory that devices read of each other gives what was written. Drivers open a peer's memory
/// also where reading it gives other bytes without an error (PCIe behind an IOMMU, or some switches),
/// and a sum of such bytes would be wrong at all members alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "engine/runtime/device/device.h"
#include "engine/runtime/exchange/peer_sum.h"

namespace heddle::runtime {

/// One member's part of a trial. Thread: one caller at a time.
class PeerTrial {
 public:
  /// `device`, which has peer_memory(), outlives this. All members' memory is open in `arenas`.
  /// `seed`: the same at all members, and another one than that of any earlier trial, whose patterns
  /// may still be there.
  PeerTrial(Device& device, std::shared_ptr<const PeerArenas> arenas, uint64_t seed);

  /// Puts this member's pattern into its memory, and returns once it is there. Errors: the device's.
  Status Put();
  /// Copies the patterns of all members, and adds them on the device, after all members' Put. Errors:
  /// kDataLoss (what was read is not what was written), naming the member; the device's.
  Status Read();

 private:
  int64_t Value(size_t member, int64_t element) const;
  std::byte* PlaceOf(size_t member) const;
  Status Expect(const std::vector<size_t>& members, const std::byte* from);

  Device& device_;
  const std::shared_ptr<const PeerArenas> arenas_;
  const uint64_t seed_;
  const int64_t elements_;  ///< Of a pattern, fp32. The sum follows it.
};

}  // namespace heddle::runtime
