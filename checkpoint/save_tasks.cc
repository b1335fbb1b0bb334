#include "checkpoint/save_tasks.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/hash.h"
#include "checkpoint/digest.h"

namespace heddle::checkpoint {

namespace {

int64_t RawBytes(const StoredBox& stored) {
  return ElementCount(stored.box.extent) * SizeOf(stored.dtype);
}

Status CheckBox(const BoxView& view) {
  const StoredBox& stored = view.stored;
  if (stored.name.empty() || stored.role.empty() || stored.global_shape.size() > kMaximumRank) {
    return InvalidArgumentError("tensor '{}' ({}): no name, no role or more than {} dimensions",
                                stored.name, stored.role, kMaximumRank);
  }
  if (!CheckedElementCount(stored.global_shape)) {
    return InvalidArgumentError("tensor '{}' ({}): shape {} is negative or too large", stored.name,
                                stored.role, ToString(stored.global_shape));
  }
  HEDDLE_RETURN_IF_ERROR(CheckInside(stored.global_shape, stored.box)
                             .WithContext("tensor '{}' ({})", stored.name, stored.role));
  if (static_cast<int64_t>(view.bytes.size()) != RawBytes(stored)) {
    return InvalidArgumentError("tensor '{}' ({}): {} bytes for box {} of {}", stored.name,
                                stored.role, view.bytes.size(), ToString(stored.box),
                                DTypeName(stored.dtype));
  }
  return Status::Ok();
}

/// Room for the box in staging memory: whole cache lines.
int64_t Aligned(const BoxView& view) {
  return (static_cast<int64_t>(view.bytes.size()) + 63) / 64 * 64;
}

}  // namespace

Result<int64_t> StagingBytes(std::span<const BoxView> boxes) {
  int64_t bytes = 0;
  for (const BoxView& view : boxes) {
    HEDDLE_RETURN_IF_ERROR(CheckBox(view));
    bytes += Aligned(view);
  }
  return bytes;
}

Result<std::shared_ptr<Save>> PrepareSave(const WriterOptions& options,
                                          const SaveRequest& request,
                                          std::span<const BoxView> boxes,
                                          std::byte* staging) {
  auto save = std::make_shared<Save>();
  save->request = request;
  save->folder = options.root + "/" + TemporaryFolderName(request.step, request.generation);
  save->file = fmt::format("{}.g{}.h5", EscapeName(options.name), request.generation);
  std::set<std::string> datasets;
  int64_t at = 0;
  for (const BoxView& view : boxes) {
    const StoredBox& stored = view.stored;
    if (view.bytes.empty()) {
      save->empty.push_back(stored);
      continue;
    }
    const int64_t element = SizeOf(stored.dtype);
    const Shape chunk = ChooseChunk(stored.box.extent, element, options.chunk_bytes);
    SaveItem item{.stored = stored,
                  .bytes = view.bytes.data(),
                  .grid = ChunkGrid(stored.box.extent, chunk),
                  .chunk = chunk,
                  .dataset = DatasetName(stored.name, stored.role, stored.global_shape, stored.box),
                  .first_task = static_cast<int64_t>(save->task_items.size())};
    if (!datasets.insert(item.dataset).second) {
      return InvalidArgumentError("tensor '{}' ({}): box {} is given twice", stored.name,
                                  stored.role, ToString(stored.box));
    }
    if (staging != nullptr) {
      std::memcpy(staging + at, view.bytes.data(), view.bytes.size());
      item.bytes = staging + at;
      at += Aligned(view);
    }
    save->task_items.insert(save->task_items.end(), static_cast<size_t>(item.grid.count()),
                            static_cast<int64_t>(save->items.size()));
    save->raw_bytes += static_cast<int64_t>(view.bytes.size());
    save->items.push_back(std::move(item));
  }
  return save;
}

void EncodeTask(const Save& save,
                int64_t task,
                ChunkEncoder& encoder,
                std::vector<std::byte>& tile,
                Encoded& out) {
  const SaveItem& item =
      save.items[static_cast<size_t>(save.task_items[static_cast<size_t>(task)])];
  const int64_t index = task - item.first_task;
  const int64_t element = SizeOf(item.stored.dtype);
  const Box local = item.grid.Clipped(index);
  const Box full = item.grid.Full(index);
  const Box whole = WholeBox(item.stored.box.extent);
  const auto raw_bytes = static_cast<size_t>(item.grid.chunk_elements() * element);
  const std::span<const std::byte> held(item.bytes, static_cast<size_t>(RawBytes(item.stored)));
  out.digest = DigestPart(held, element, item.stored.global_shape, item.stored.box,
                          Shifted(local, item.stored.box.offset, 1));
  std::span<const std::byte> raw = held;
  if (item.grid.count() > 1) {
    tile.resize(raw_bytes);
    if (local != full) {
      std::fill(tile.begin(), tile.end(), std::byte{0});
    }
    CopyPart(held.data(), whole, tile.data(), full, local, element);
    raw = tile;
  }
  const auto bound = static_cast<size_t>(EncodedBound(static_cast<int64_t>(raw_bytes)));
  out.bytes.resize(std::max(out.bytes.size(), bound));
  auto size = encoder.Encode(raw, element, out.bytes);
  out.status = size.status();
  if (size.ok()) {
    out.size = *size;
    out.hash = Hash64(std::span(out.bytes).first(static_cast<size_t>(*size)));
  }
}

}  // namespace heddle::checkpoint
