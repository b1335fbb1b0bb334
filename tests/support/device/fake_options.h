/// \file
/// How a fake device behaves. With a Fault it breaks one promise of engine/runtime/device/device.h,
/// which is what a runtime meets that forgets the matching care: tests have to see each of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace heddle::runtime::testing {

enum class Fault : uint8_t {
  kNone,
  kUploadSourceFreed,     ///< The host's tensor is not kept until its copy has run.
  kDownloadSourceFreed,   ///< Nor is the device's.
  kDownloadTargetFreed,   ///< Nor is the host's tensor that a download writes to.
  kBufferTwice,           ///< The pool gives one buffer to two.
  kUploadIsTheHost,       ///< An upload gives the host's tensor itself.
  kDownloadIsTheDevice,   ///< A download gives the device's tensor itself.
  kDownloadEarly,         ///< It waits for no compute.
  kDownloadOneWorkEarly,  ///< For all but the last work.
  kDownloadAfterUploads,  ///< For the queue of uploads instead.
  kDownloadSkipped,       ///< Its target stays as it was.
  kDownloadHalf,          ///< It copies half.
  kUploadSkipped,         ///< Its target stays as it was.
  kUploadHalf,            ///< It copies half.
  kAwaitForgotten,        ///< Compute does not wait for the mark.
  kAwaitLate,             ///< It waits one work too late.
  kMarkEndsAtOnce,        ///< A download's mark says that it has ended.
  kMarkOfCompute,         ///< It is that of the compute before it.
  kUploadMarkEndsAtOnce,  ///< An upload's mark says so: its source may change.
  kWaitGivesUp,           ///< A mark's Wait returns early, as if all were well.
  kWaitForEver,           ///< It does not return at its deadline.
  kDrainLeavesCopies,     ///< Drain waits for compute only.
  kOutOfOrder,            ///< Two works change places.
  kOutputsLost,           ///< The last output of a work is not kept.
  kErrorForgotten,        ///< After an error all goes on as if there had been none.
  kErrorOnce,             ///< One wait tells of it, and no other.
  kCountsLaunches,        ///< Works count when they are queued.
  kCountsPreparation,     ///< So does what is no part of a step.
  kMemoryKept,            ///< Freed memory still counts.
  kPeerCopyEarly,         ///< A copy among peers does not wait for the mark that it begins after.
  kPeerMarkEndsAtOnce,    ///< Its mark, or that of a sum, says that it has ended.
  kPeerSumReversed,       ///< A sum of peers begins with the last addend.
};
inline constexpr int kFaults = static_cast<int>(Fault::kPeerSumReversed) + 1;

struct FakeOptions {
  uint64_t seed = 0;
  bool registers = true;             ///< Memory of the host; else it refuses.
  bool exports = false;              ///< Memory of its own to network devices.
  bool flushes = true;               ///< What they write is seen after a flush; else never.
  bool has_peers = true;             ///< Device::peer_memory().
  bool opens_peers = true;           ///< Memory of other devices; else it refuses.
  bool garbles_copies = false;       ///< Out of other devices' memory, without an error.
  bool garbles_sums = false;         ///< Of what is in other devices' memory.
  double peer_bytes_per_second = 0;  ///< PeerMemory::bytes_per_second().
  size_t memory_bytes = size_t{64} << 20;
  int64_t emulated_bytes = 0;  ///< DeviceOptions::memory_cap_bytes.
  std::string card = {};       ///< Device::card().
  Fault fault = Fault::kNone;
  int64_t lost_in_copy =
      0;  ///< In the middle of this one, from 1 on, the device is lost; 0: never.
  int64_t error_in_work = 0;  ///< This work, from 1 on, ends with an error; 0: none.
};

}  // namespace heddle::runtime::testing
