#include "checkpoint/format/manifest.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "checkpoint/codec/codec.h"
#include "checkpoint/format/layout.h"

namespace heddle::checkpoint {

namespace {

constexpr size_t kMaxName = 4096;

/// Where chunks lie: in memory they need not be what an HDF5 library can read.
enum class Place : uint8_t { kStorage, kMemory };

/// A box without chunks, whose elements follow from those of another tensor.
Status ValidateDerivedBox(const Manifest& manifest, const TensorInfo& info, const BoxRecord& box) {
  if (!box.chunks.empty() || !box.chunk.empty() || !box.dataset.empty() || box.stored_as) {
    return DataLossError("a derived box has elements of its own");
  }
  const TensorRecord* const source = manifest.Find({.name = info.name, .role = box.derived_from});
  const bool narrow = info.dtype == DType::kBF16 || info.dtype == DType::kF16;
  if (source == nullptr || !narrow || source->info.dtype != DType::kF32 ||
      source->info.shape != info.shape) {
    return DataLossError("{} elements cannot be derived from role '{}', which is {}",
                         DTypeName(info.dtype), box.derived_from,
                         source == nullptr ? "not there"
                                           : fmt::format("{} {}", DTypeName(source->info.dtype),
                                                         ToString(source->info.shape)));
  }
  return Status::Ok();
}

int64_t RawChunkBytes(const TensorInfo& info, const BoxRecord& box, int64_t index) {
  return ElementCount(ChunkGrid(box.box.extent, box.chunk).Clipped(index).extent) *
         SizeOf(info.dtype);
}

Status ValidateStoredBox(const TensorInfo& info,
                         const BoxRecord& box,
                         const std::vector<FileRecord>& files,
                         Place place) {
  if (box.raw && (place == Place::kStorage || box.stored_as)) {
    return DataLossError("its chunks are not encoded");
  }
  if (box.stored_as && (info.dtype != DType::kF32 || box.stored_as != DType::kBF16)) {
    return DataLossError("{} elements stored as {}", DTypeName(info.dtype),
                         DTypeName(*box.stored_as));
  }
  if (box.file < 0 || box.file >= static_cast<int64_t>(files.size())) {
    return DataLossError("file number {} of {}", box.file, files.size());
  }
  if (box.chunk.size() != box.box.extent.size()) {
    return DataLossError("chunk shape {} for box {}", ToString(box.chunk), ToString(box.box));
  }
  for (size_t d = 0; d < box.chunk.size(); ++d) {
    if (box.chunk[d] < 1 || box.chunk[d] > box.box.extent[d]) {
      return DataLossError("chunk shape {} for box {}", ToString(box.chunk), ToString(box.box));
    }
  }
  const ChunkGrid grid(box.box.extent, box.chunk);
  const int64_t raw =
      grid.chunk_elements() > kChunkLimit ? INT64_MAX : grid.chunk_elements() * SizeOf(info.dtype);
  if (raw > kChunkLimit || grid.count() != static_cast<int64_t>(box.chunks.size())) {
    return DataLossError("{} chunks of shape {} for box {}", box.chunks.size(), ToString(box.chunk),
                         ToString(box.box));
  }
  const int64_t stored = raw / SizeOf(info.dtype) * SizeOf(box.stored_as.value_or(info.dtype));
  const int64_t file_bytes = files[static_cast<size_t>(box.file)].bytes;
  for (size_t i = 0; i < box.chunks.size(); ++i) {
    const ChunkRecord& chunk = box.chunks[i];
    const bool fits = box.raw ? chunk.bytes == RawChunkBytes(info, box, static_cast<int64_t>(i))
                              : chunk.bytes >= 1 && chunk.bytes <= EncodedBound(stored);
    if (!fits || chunk.address < 0 || chunk.address > file_bytes ||
        chunk.bytes > file_bytes - chunk.address) {
      return DataLossError("a chunk of {} bytes at {} in a file of {}", chunk.bytes, chunk.address,
                           file_bytes);
    }
  }
  return Status::Ok();
}

Status ValidateBox(const Manifest& manifest,
                   const TensorInfo& info,
                   const BoxRecord& box,
                   Place place) {
  HEDDLE_RETURN_IF_ERROR(CheckInside(info.shape, box.box));
  if (ElementCount(box.box.extent) == 0) {
    const bool plain =
        box.chunks.empty() && box.derived_from.empty() && !box.stored_as && box.digest == Digest{};
    return plain ? Status::Ok() : DataLossError("an empty box has chunks");
  }
  return box.derived_from.empty() ? ValidateStoredBox(info, box, manifest.files, place)
                                  : ValidateDerivedBox(manifest, info, box);
}

Status ValidateInfo(const TensorInfo& info) {
  const auto elements = CheckedElementCount(info.shape);
  if (info.name.empty() || info.role.empty() || info.name.size() > kMaxName ||
      info.role.size() > kMaxName || info.shape.size() > kMaxRank || !elements ||
      *elements > (int64_t{1} << 62) / SizeOf(info.dtype)) {
    return DataLossError("name, role or shape {} is out of bounds", ToString(info.shape));
  }
  return Status::Ok();
}

Status ValidateTensor(const Manifest& manifest, const TensorRecord& tensor) {
  HEDDLE_RETURN_IF_ERROR(ValidateInfo(tensor.info));
  Digest sum;
  std::vector<const Box*> boxes;
  for (const BoxRecord& box : tensor.boxes) {
    HEDDLE_RETURN_IF_ERROR(ValidateBox(manifest, tensor.info, box, Place::kStorage));
    sum += box.digest;
    boxes.push_back(&box.box);
  }
  HEDDLE_RETURN_IF_ERROR(CheckCoverage(tensor.info.shape, boxes));
  if (sum != tensor.digest) {
    return DataLossError("the boxes' digests do not add up to the tensor's");
  }
  return Status::Ok();
}

}  // namespace

const TensorRecord* Manifest::Find(const TensorKey& key) const {
  const auto less = [](const TensorRecord& record, const TensorKey& wanted) {
    return std::pair(record.info.role, record.info.name) < std::pair(wanted.role, wanted.name);
  };
  const auto found = std::lower_bound(tensors.begin(), tensors.end(), key, less);
  return found != tensors.end() && found->info.key() == key ? &*found : nullptr;
}

int64_t Manifest::StoredBytes() const {
  int64_t bytes = 0;
  for (const FileRecord& file : files) {
    bytes += file.bytes;
  }
  return bytes;
}

int64_t Manifest::RawBytes() const {
  int64_t bytes = 0;
  for (const TensorRecord& tensor : tensors) {
    bytes += ElementCount(tensor.info.shape) * SizeOf(tensor.info.dtype);
  }
  return bytes;
}

Status ValidateManifest(const Manifest& manifest) {
  std::set<std::string> names;
  for (const FileRecord& file : manifest.files) {
    if (!IsPlainFileName(file.name) || file.name == kManifestName ||
        !names.insert(file.name).second || file.bytes < 0 || file.hash.size() != kHexDigits) {
      return DataLossError("file '{}': its name, size or hash is not acceptable", file.name);
    }
  }
  const TensorRecord* before = nullptr;
  for (const TensorRecord& tensor : manifest.tensors) {
    const TensorInfo& info = tensor.info;
    if (before != nullptr &&
        std::pair(info.role, info.name) <= std::pair(before->info.role, before->info.name)) {
      return DataLossError("tensor '{}' ({}) is listed twice or out of order", info.name,
                           info.role);
    }
    before = &tensor;
    const Status status = ValidateTensor(manifest, tensor);
    if (!status.ok()) {
      return Status(StatusCode::kDataLoss,
                    fmt::format("tensor '{}' ({}): {}", info.name, info.role, status.message()));
    }
  }
  return Status::Ok();
}

Status ValidateMemoryShard(const FilePart& part) {
  Manifest manifest;  // Without tensors: nothing can be derived from another part.
  manifest.files.push_back(part.file);
  for (const FilePart::PartBox& box : part.boxes) {
    Status status = ValidateInfo(box.tensor);
    if (status.ok()) {
      status = ValidateBox(manifest, box.tensor, box.record, Place::kMemory);
    }
    if (!status.ok()) {
      return Status(StatusCode::kDataLoss, fmt::format("tensor '{}' ({}): {}", box.tensor.name,
                                                       box.tensor.role, status.message()));
    }
  }
  return Status::Ok();
}

}  // namespace heddle::checkpoint
