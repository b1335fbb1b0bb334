#include "comm/cost/segment_sizes.h"

#include <algorithm>

namespace heddle::comm {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kSmallBytes = size_t{64} << 10;
/// Bytes of all members' bulk stages of one turn together, so that fewer members have larger
/// stages. A large block saves waits, but an urgent message on the same core waits for it.
constexpr size_t kBulkBytes = size_t{1} << 20;
/// The most members with small stages of full size; with more members the segment does not grow.
constexpr size_t kFullMembers = 8;

size_t Pages(size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

SegmentStages StagesOf(int members) {
  const auto count = static_cast<size_t>(members);
  const size_t crowd = std::max<size_t>(1, (count + kFullMembers - 1) / kFullMembers);
  return {.small_bytes = Pages(kSmallBytes / crowd), .bulk_bytes = Pages(kBulkBytes / count)};
}

int64_t SegmentBytes(int members) {
  if (members < 2 || members > kMaxSharing) {
    return 0;
  }
  const SegmentStages stages = StagesOf(members);
  return int64_t{kSegmentSlots} * members * 2 *
         static_cast<int64_t>(stages.small_bytes + stages.bulk_bytes);
}

}  // namespace heddle::comm
