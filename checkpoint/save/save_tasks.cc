#include "checkpoint/save/save_tasks.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <new>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/hash.h"
#include "base/tensor/half.h"
#include "checkpoint/format/digest.h"

namespace heddle::checkpoint {

namespace {

int64_t RawBytes(const StoredBox& stored) {
  return ElementCount(stored.box.extent) * SizeOf(stored.dtype);
}

Status CheckBox(const BoxView& view) {
  const StoredBox& stored = view.stored;
  if (stored.name.empty() || stored.role.empty() || stored.global_shape.size() > kMaxRank) {
    return InvalidArgumentError("tensor '{}' ({}): no name, no role or more than {} dimensions",
                                stored.name, stored.role, kMaxRank);
  }
  if (!CheckedElementCount(stored.global_shape)) {
    return InvalidArgumentError("tensor '{}' ({}): shape {} is negative or too large", stored.name,
                                stored.role, ToString(stored.global_shape));
  }
  if (stored.stored_as && (stored.dtype != DType::kF32 || stored.stored_as != DType::kBF16)) {
    return InvalidArgumentError("tensor '{}' ({}): {} elements cannot be stored as {}", stored.name,
                                stored.role, DTypeName(stored.dtype), DTypeName(*stored.stored_as));
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

/// Links every low-precision copy to the master of its name whose box contains its own. Boxes of
/// other writers are not seen here, and need not be: a copy without its master is stored.
void FindMasters(std::vector<SaveItem>& items) {
  std::multimap<std::string_view, const SaveItem*> masters;
  for (const SaveItem& item : items) {
    const StoredBox& stored = item.stored;
    if (stored.role == kMasterRole && stored.dtype == DType::kF32 && !stored.stored_as) {
      masters.emplace(stored.name, &item);
    }
  }
  for (SaveItem& item : items) {
    const StoredBox& stored = item.stored;
    const bool narrow = stored.dtype == DType::kBF16 || stored.dtype == DType::kF16;
    if (stored.role != kCopyRole || !narrow) {
      continue;
    }
    const auto [begin, end] = masters.equal_range(stored.name);
    for (auto at = begin; at != end; ++at) {
      const SaveItem& master = *at->second;
      if (master.stored.global_shape == stored.global_shape &&
          Contains(master.stored.box, stored.box)) {
        item.derivation = std::make_shared<Derivation>();
        item.derivation->master = master.bytes;
        item.derivation->master_box = master.stored.box;
      }
    }
  }
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
  save->file = fmt::format("{}.g{}.h5", EscapeName(options.name), request.generation);
  save->staged = staging != nullptr;
  save->raw = request.memory != nullptr && !request.compress;
  std::set<std::string> datasets;
  int64_t at = 0;
  for (const BoxView& view : boxes) {
    const StoredBox& stored = view.stored;
    if (view.bytes.empty()) {
      save->empty.push_back(stored);
      continue;
    }
    if (request.memory != nullptr && stored.stored_as) {
      return InvalidArgumentError("tensor '{}' ({}): it is not rounded in memory", stored.name,
                                  stored.role);
    }
    const int64_t element = SizeOf(stored.dtype);
    // A raw chunk stays where its elements are: side by side.
    const Shape chunk = save->raw ? ContiguousTile(stored.box.extent, options.chunk_bytes / element)
                                  : ChooseChunk(stored.box.extent, element, options.chunk_bytes);
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
      save->copies.push_back({.from = view.bytes, .to = staging + at});
      item.bytes = staging + at;
      at += Aligned(view);
    }
    save->task_items.insert(save->task_items.end(), static_cast<size_t>(item.grid.count()),
                            static_cast<int64_t>(save->items.size()));
    save->raw_bytes += static_cast<int64_t>(view.bytes.size());
    save->items.push_back(std::move(item));
  }
  save->staged_bytes = at;
  if (request.memory == nullptr) {
    FindMasters(save->items);
  }
  return save;
}

namespace {

/// Compares every bit of the copy with its master, rounded, a piece at a time.
bool FollowsFromMaster(const SaveItem& item, EncodeMemory& memory) {
  constexpr int64_t kPieceElements = int64_t{256} << 10;  // Stays in the second cache.
  const DType type = item.stored.dtype;
  const ChunkGrid pieces(item.stored.box.extent,
                         ContiguousTile(item.stored.box.extent, kPieceElements));
  const std::byte* held = item.bytes;  // Pieces come from front to back.
  for (int64_t i = 0; i < pieces.count(); ++i) {
    const Box piece = Shifted(pieces.Clipped(i), item.stored.box.offset, 1);
    const int64_t count = ElementCount(piece.extent);
    memory.tile.resize(static_cast<size_t>(count * SizeOf(DType::kF32)));
    memory.narrow.resize(static_cast<size_t>(count * SizeOf(type)));
    CopyPart(item.derivation->master, item.derivation->master_box, memory.tile.data(), piece, piece,
             SizeOf(DType::kF32));
    RoundFromF32(memory.tile, memory.narrow, type);
    if (std::memcmp(held, memory.narrow.data(), memory.narrow.size()) != 0) {
      return false;
    }
    held += memory.narrow.size();
  }
  return true;
}

void EncodeInto(std::span<const std::byte> raw,
                int64_t element,
                ChunkEncoder& encoder,
                Encoded& out) {
  const auto bound = static_cast<size_t>(EncodedBound(static_cast<int64_t>(raw.size())));
  out.memory.resize(std::max(out.memory.size(), bound));
  const auto size = encoder.Encode(raw, element, out.memory);
  out.status = size.status();
  if (size.ok()) {
    out.bytes = std::span(out.memory).first(static_cast<size_t>(*size));
    out.hash = Hash64(out.bytes);
  }
}

/// Whether `part`, in the box's own coordinates, lies in one piece there because it has whole rows.
bool IsRowsOf(const Box& box, const Box& part) {
  return !box.extent.empty() &&
         std::equal(box.extent.begin() + 1, box.extent.end(), part.extent.begin() + 1);
}

/// The elements of a part of a box that lies in one piece: whole rows, or a ContiguousTile.
std::span<const std::byte> PieceOf(const SaveItem& item, const Box& local) {
  const Shape& extent = item.stored.box.extent;
  int64_t first = 0;
  for (size_t d = 0; d < extent.size(); ++d) {
    first = first * extent[d] + local.offset[d];
  }
  const int64_t element = SizeOf(item.stored.dtype);
  return {item.bytes + first * element, static_cast<size_t>(ElementCount(local.extent) * element)};
}

void EncodeChunk(
    const Save& save, int64_t task, ChunkEncoder& encoder, EncodeMemory& memory, Encoded& out) {
  const SaveItem& item =
      save.items[static_cast<size_t>(save.task_items[static_cast<size_t>(task)])];
  const StoredBox& stored = item.stored;
  out.derived = false;
  if (save.raw) {
    out.bytes = PieceOf(item, item.grid.Clipped(task - item.first_task));
    out.hash = Hash64(out.bytes);
    out.status = Status::Ok();
    return;
  }
  if (item.derivation != nullptr) {
    std::call_once(item.derivation->compared,
                   [&] { item.derivation->holds = FollowsFromMaster(item, memory); });
    out.derived = item.derivation->holds;
  }
  const int64_t index = task - item.first_task;
  const int64_t element = SizeOf(stored.dtype);
  const Box local = item.grid.Clipped(index);
  const Box full = item.grid.Full(index);
  std::span<const std::byte> raw(item.bytes, static_cast<size_t>(RawBytes(stored)));
  if (IsRowsOf(stored.box, local) && local == full) {
    raw = PieceOf(item, local);
  } else if (item.grid.count() > 1) {
    memory.tile.resize(static_cast<size_t>(item.grid.chunk_elements() * element));
    if (local != full) {
      std::fill(memory.tile.begin(), memory.tile.end(), std::byte{0});
    }
    CopyPart(raw.data(), WholeBox(stored.box.extent), memory.tile.data(), full, local, element);
    raw = memory.tile;
  }
  std::span<const std::byte> encoded = raw;
  if (stored.stored_as) {  // The digest is that of what a reader will get.
    memory.narrow.resize(
        static_cast<size_t>(item.grid.chunk_elements() * SizeOf(*stored.stored_as)));
    RoundFromF32(raw, memory.narrow, *stored.stored_as);
    memory.tile.resize(raw.size());
    WidenToF32(memory.narrow, *stored.stored_as, memory.tile);
    raw = memory.tile;
    encoded = memory.narrow;
  }
  if (save.request.memory == nullptr) {  // Snapshots in memory are not compared.
    out.digest = DigestPart(raw, element, stored.global_shape, Shifted(full, stored.box.offset, 1),
                            Shifted(local, stored.box.offset, 1));
  }
  if (!out.derived) {
    EncodeInto(encoded, SizeOf(stored.stored_as.value_or(stored.dtype)), encoder, out);
  }
}

}  // namespace

void EncodeTask(
    const Save& save, int64_t task, ChunkEncoder& encoder, EncodeMemory& memory, Encoded& out) {
  try {
    EncodeChunk(save, task, encoder, memory, out);
  } catch (const std::bad_alloc&) {
    out.derived = false;
    out.status =
        ResourceExhaustedError("no memory to encode a chunk of step {}", save.request.step);
  }
}

}  // namespace heddle::checkpoint
