#include "checkpoint/storage/s3/block_cache.h"

#include <algorithm>

namespace heddle::s3 {

Status BlockCache::Read(
    uint64_t object, int64_t bytes, int64_t offset, std::span<std::byte> out, const Fetch& fetch) {
  if (static_cast<int64_t>(out.size()) >= kBlockBytes) {
    return fetch(offset, out);
  }
  while (!out.empty()) {
    const int64_t block = offset / kBlockBytes;
    const int64_t begin = block * kBlockBytes;
    Slot& slot = slots_[(object + static_cast<uint64_t>(block)) % kSlots];
    const MutexLock lock(slot.mutex);
    if (slot.object != object || slot.block != block) {
      slot.block = -1;
      slot.content.resize(static_cast<size_t>(std::min(kBlockBytes, bytes - begin)));
      HEDDLE_RETURN_IF_ERROR(fetch(begin, slot.content));
      slot.object = object;
      slot.block = block;
    }
    const auto from = static_cast<size_t>(offset - begin);
    const size_t now = std::min(out.size(), slot.content.size() - from);
    std::copy_n(slot.content.begin() + static_cast<std::ptrdiff_t>(from), now, out.begin());
    out = out.subspan(now);
    offset += static_cast<int64_t>(now);
  }
  return Status::Ok();
}

}  // namespace heddle::s3
