#include "checkpoint/read/verify.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/bytes.h"
#include "checkpoint/files/chunk_reader.h"
#include "checkpoint/files/file_access.h"
#include "checkpoint/format/digest.h"
#include "checkpoint/format/layout.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/read/reader.h"
#include "checkpoint/storage/manifest_file.h"
#include "checkpoint/storage/storage.h"

namespace heddle::checkpoint {

namespace {

std::string TensorName(const TensorRecord& tensor) {
  return fmt::format("{} ({})", tensor.info.name, tensor.info.role);
}

/// Damage of the chunks of one box, and the digest of its elements when there is none. Errors:
/// those of a store that cannot be reached, as below.
Status VerifyBox(const SourceFile& file,
                 const std::string& file_name,
                 const TensorRecord& tensor,
                 const BoxRecord& box,
                 ChunkReader& reader,
                 ProgressCount& progress,
                 std::vector<Damage>& damages) {
  const size_t before = damages.size();
  const ChunkGrid grid(box.box.extent, box.chunk);
  Digest digest;
  for (int64_t index = 0; index < grid.count(); ++index) {
    auto raw = reader.Read(file, tensor, box, index);
    progress.Add(box.chunks[static_cast<size_t>(index)].bytes);
    if (IsUnreachable(raw.status())) {
      return raw.status();
    }
    if (!raw.ok()) {
      damages.push_back(
          {.file = file_name,
           .tensor = TensorName(tensor),
           .what = fmt::format("chunk {} of box {} is damaged", index, ToString(box.box))});
      continue;
    }
    const Box held = Shifted(grid.Full(index), box.box.offset, 1);
    const Box filled = Shifted(grid.Clipped(index), box.box.offset, 1);
    digest += DigestPart(*raw, SizeOf(tensor.info.dtype), tensor.info.shape, held, filled);
  }
  if (damages.size() == before && digest != box.digest) {
    damages.push_back({.file = file_name,
                       .tensor = TensorName(tensor),
                       .what = fmt::format("the elements of box {} do not match their digest",
                                           ToString(box.box))});
  }
  return Status::Ok();
}

Status VerifyFile(const std::string& folder,
                  const Manifest& manifest,
                  size_t index,
                  ProgressCount& progress,
                  std::vector<Damage>& damages) {
  const FileRecord& record = manifest.files[index];
  const auto opened = OpenFile(JoinPath(folder, record.name));
  if (IsUnreachable(opened.status())) {
    return opened.status();
  }
  if (!opened.ok()) {
    damages.push_back({.file = record.name, .tensor = "", .what = opened.status().message()});
    return Status::Ok();
  }
  const SourceFile& file = **opened;
  if (file.bytes() != record.bytes) {
    damages.push_back({.file = record.name,
                       .tensor = "",
                       .what = fmt::format("{} bytes, {} expected", file.bytes(), record.bytes)});
  }
  const size_t before = damages.size();
  ChunkReader reader;
  for (const TensorRecord& tensor : manifest.tensors) {
    for (const BoxRecord& box : tensor.boxes) {
      if (box.file == static_cast<int64_t>(index) && !box.chunks.empty()) {
        HEDDLE_RETURN_IF_ERROR(
            VerifyBox(file, record.name, tensor, box, reader, progress, damages));
      }
    }
  }
  const auto hash = HashFile(file, [&](int64_t bytes) { progress.Add(bytes); });
  if (IsUnreachable(hash.status()) || (hash.ok() && *hash == record.hash)) {
    return hash.status();
  }
  if (file.bytes() == record.bytes && damages.size() == before) {
    damages.push_back({.file = record.name,
                       .tensor = "",
                       .what = hash.ok()
                                   ? "the bytes between the tensors (HDF5 structure) are damaged"
                                   : hash.status().message()});
  }
  return Status::Ok();
}

/// Whether the elements that a derived box's source gives are those that its writer compared.
Result<bool> IsDerived(const Reader& reader, const TensorRecord& tensor, const BoxRecord& box) {
  constexpr int64_t kTileElements = int64_t{4} << 20;
  const int64_t element = SizeOf(tensor.info.dtype);
  const ChunkGrid tiles(box.box.extent, ContiguousTile(box.box.extent, kTileElements));
  Digest digest;
  Bytes bytes;
  for (int64_t i = 0; i < tiles.count(); ++i) {
    const Box tile = Shifted(tiles.Clipped(i), box.box.offset, 1);
    bytes.resize(static_cast<size_t>(ElementCount(tile.extent) * element));
    HEDDLE_RETURN_IF_ERROR(reader.Read(tensor.info.key(), tile, bytes));
    digest += DigestBox(bytes, element, tensor.info.shape, tile);
  }
  return digest == box.digest;
}

bool HasDerived(const Manifest& manifest) {
  return std::ranges::any_of(manifest.tensors, [](const TensorRecord& tensor) {
    return std::ranges::any_of(tensor.boxes,
                               [](const BoxRecord& box) { return !box.derived_from.empty(); });
  });
}

Status VerifyDerived(const std::string& path, std::vector<Damage>& damages) {
  HEDDLE_ASSIGN_OR_RETURN(const auto reader, Reader::Open(path));
  for (const TensorRecord& tensor : reader->manifest().tensors) {
    for (const BoxRecord& box : tensor.boxes) {
      if (box.derived_from.empty()) {
        continue;
      }
      HEDDLE_ASSIGN_OR_RETURN(const bool derived, IsDerived(*reader, tensor, box));
      if (!derived) {
        damages.push_back({.file = kManifestName,
                           .tensor = TensorName(tensor),
                           .what = fmt::format("the elements of box {}, derived from role '{}', do "
                                               "not match their digest",
                                               ToString(box.box), box.derived_from)});
      }
    }
  }
  return Status::Ok();
}

/// What is read when nothing is damaged.
int64_t BytesToRead(const Manifest& manifest) {
  int64_t bytes = manifest.StoredBytes();
  for (const TensorRecord& tensor : manifest.tensors) {
    for (const BoxRecord& box : tensor.boxes) {
      for (const ChunkRecord& chunk : box.chunks) {
        bytes += chunk.bytes;
      }
    }
  }
  return bytes;
}

}  // namespace

std::string ToString(const Damage& damage) {
  return damage.tensor.empty()
             ? fmt::format("{}: {}", damage.file, damage.what)
             : fmt::format("{}: tensor {}: {}", damage.file, damage.tensor, damage.what);
}

Result<std::vector<Damage>> Verify(const std::string& path, const Progress& progress) {
  std::vector<Damage> damages;
  const auto manifest = LoadManifest(path);
  if (manifest.status().code() == StatusCode::kDataLoss) {
    damages.push_back({.file = kManifestName, .tensor = "", .what = manifest.status().message()});
    return damages;
  }
  HEDDLE_RETURN_IF_ERROR(manifest.status());
  ProgressCount count(progress, BytesToRead(*manifest));
  for (size_t i = 0; i < manifest->files.size(); ++i) {
    HEDDLE_RETURN_IF_ERROR(VerifyFile(path, *manifest, i, count, damages));
  }
  if (damages.empty() && HasDerived(*manifest)) {
    HEDDLE_RETURN_IF_ERROR(VerifyDerived(path, damages));
  }
  return damages;
}

}  // namespace heddle::checkpoint
