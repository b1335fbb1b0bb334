/// \file
/// The description of a part that another worker sends: whatever is accepted survives its own
/// bytes, and is judged without a fault.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "checkpoint/format/layout.h"
#include "checkpoint/save/memory_shard.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using heddle::checkpoint::CheckedElementCount;
  using heddle::checkpoint::DecodeMemoryShard;
  const auto part = DecodeMemoryShard(std::as_bytes(std::span(data, size)));
  if (!part.ok()) {
    return 0;
  }
  const auto again = DecodeMemoryShard(heddle::checkpoint::EncodeMemoryShard(*part));
  if (!again.ok() || again->boxes != part->boxes || again->step != part->step) {
    std::abort();
  }
  std::vector<heddle::checkpoint::StoredBox> boxes;
  for (const auto& box : part->boxes) {
    // Against what a part is judged is this worker's own: its sizes are no peer's to choose.
    constexpr int64_t kElements = int64_t{1} << 40;
    for (const auto& shape : {box.tensor.shape, box.record.box.extent}) {
      if (CheckedElementCount(shape).value_or(kElements) >= kElements) {
        return 0;
      }
    }
    boxes.push_back({.name = box.tensor.name,
                     .role = box.tensor.role,
                     .dtype = box.tensor.dtype,
                     .global_shape = box.tensor.shape,
                     .box = box.record.box});
  }
  heddle::checkpoint::CheckMemoryShard(*part, boxes).IgnoreError("most parts are refused");
  return 0;
}
