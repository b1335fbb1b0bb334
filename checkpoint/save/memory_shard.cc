#include "checkpoint/save/memory_shard.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/codec/codec.h"
#include "checkpoint/files/file_access.h"
#include "checkpoint/format/layout.h"
#include "checkpoint/format/manifest.h"

namespace heddle::checkpoint {

namespace {

/// Chunks of a large box are no smaller (WriterOptions::chunk_bytes is a MiB).
constexpr int64_t kLeastChunk = int64_t{16} << 10;
/// What EncodeMemoryShard puts beside names and chunks: once, and for each box.
constexpr int64_t kHeadBytes = 40;
constexpr int64_t kBoxBytes = 32 + int64_t{4} * 8 * static_cast<int64_t>(kMaxRank);
constexpr int64_t kChunkBytes = 24;

class MemoryFile : public SourceFile {
 public:
  MemoryFile(std::string name, std::shared_ptr<const MemoryShard> part)
      : SourceFile(std::move(name), part->part.file.bytes),
        part_(std::move(part)) {}

  Status ReadAt(int64_t offset, std::span<std::byte> out) const override {
    const auto all = part_->bytes();
    if (offset < 0 || offset > bytes() || static_cast<int64_t>(out.size()) > bytes() - offset) {
      return DataLossError("{}: {} bytes wanted at {} of {}", name(), out.size(), offset, bytes());
    }
    std::memcpy(out.data(), all.data() + offset, out.size());
    return Status::Ok();
  }

 private:
  const std::shared_ptr<const MemoryShard> part_;
};

void PutShape(const Shape& shape, ByteWriter& out) {
  out.Put(static_cast<uint32_t>(shape.size()));
  out.PutRaw(std::as_bytes(std::span(shape)));
}

Result<Shape> GetShape(ByteReader& in) {
  HEDDLE_ASSIGN_OR_RETURN(const auto rank, in.Get<uint32_t>());
  HEDDLE_ASSIGN_OR_RETURN(const auto bytes, in.GetRaw(rank * sizeof(int64_t)));
  Shape shape(rank);
  std::ranges::copy(bytes, std::as_writable_bytes(std::span(shape)).begin());
  return shape;
}

void PutBox(const FilePart::PartBox& box, ByteWriter& out) {
  out.PutString(box.tensor.name);
  out.PutString(box.tensor.role);
  out.Put(box.tensor.dtype);
  PutShape(box.tensor.shape, out);
  PutShape(box.record.box.offset, out);
  PutShape(box.record.box.extent, out);
  PutShape(box.record.chunk, out);
  out.Put(static_cast<uint8_t>(box.record.raw));
  out.Put(static_cast<uint32_t>(box.record.chunks.size()));
  for (const ChunkRecord& chunk : box.record.chunks) {
    out.Put(chunk.address);
    out.Put(chunk.bytes);
    out.Put(chunk.hash);
  }
}

Result<FilePart::PartBox> GetBox(ByteReader& in) {
  FilePart::PartBox box;
  HEDDLE_ASSIGN_OR_RETURN(box.tensor.name, in.GetString());
  HEDDLE_ASSIGN_OR_RETURN(box.tensor.role, in.GetString());
  HEDDLE_ASSIGN_OR_RETURN(box.tensor.dtype, in.Get<DType>());
  if (box.tensor.dtype > DType::kU8) {
    return DataLossError("tensor '{}' ({}): unknown element type {}", box.tensor.name,
                         box.tensor.role, static_cast<int>(box.tensor.dtype));
  }
  HEDDLE_ASSIGN_OR_RETURN(box.tensor.shape, GetShape(in));
  HEDDLE_ASSIGN_OR_RETURN(box.record.box.offset, GetShape(in));
  HEDDLE_ASSIGN_OR_RETURN(box.record.box.extent, GetShape(in));
  HEDDLE_ASSIGN_OR_RETURN(box.record.chunk, GetShape(in));
  HEDDLE_ASSIGN_OR_RETURN(const auto raw, in.Get<uint8_t>());
  box.record.raw = raw != 0;
  HEDDLE_ASSIGN_OR_RETURN(const auto chunks, in.Get<uint32_t>());
  if (chunks > in.left() / kChunkBytes) {
    return DataLossError("truncated: {} chunks in {} bytes", chunks, in.left());
  }
  box.record.chunks.resize(chunks);
  for (ChunkRecord& chunk : box.record.chunks) {
    HEDDLE_ASSIGN_OR_RETURN(chunk.address, in.Get<int64_t>());
    HEDDLE_ASSIGN_OR_RETURN(chunk.bytes, in.Get<int64_t>());
    HEDDLE_ASSIGN_OR_RETURN(chunk.hash, in.Get<uint64_t>());
  }
  return box;
}

}  // namespace

Status AppendingSink::BeginDataset(const std::string& /*dataset*/,
                                   const StoredBox& /*stored*/,
                                   const Shape& /*chunk*/) {
  return Status::Ok();
}

Result<int64_t> AppendingSink::WriteChunk(const Shape& /*offset*/,
                                          std::span<const std::byte> bytes) {
  const int64_t address = used_;
  used_ += static_cast<int64_t>(bytes.size());
  HEDDLE_RETURN_IF_ERROR(memory_.Extend(used_));
  std::memcpy(memory_.data() + address, bytes.data(), bytes.size());
  return address;
}

Status AppendingSink::EndDataset() {
  return Status::Ok();
}

Status InPlaceSink::BeginDataset(const std::string& /*dataset*/,
                                 const StoredBox& /*stored*/,
                                 const Shape& /*chunk*/) {
  return Status::Ok();
}

Result<int64_t> InPlaceSink::WriteChunk(const Shape& /*offset*/, std::span<const std::byte> bytes) {
  return bytes.data() - memory_.data();
}

Status InPlaceSink::EndDataset() {
  return Status::Ok();
}

PartLimits LimitsOf(std::span<const StoredBox> boxes) {
  PartLimits limits;
  for (const StoredBox& box : boxes) {
    const int64_t raw = ElementCount(box.box.extent) * SizeOf(box.dtype);
    const int64_t chunks = raw / kLeastChunk + 1;
    limits.raw_bytes += raw;
    // Chunks at a box's end are padded with zeros, which take next to nothing.
    limits.bytes += 2 * raw + chunks * EncodedBound(0);
    limits.description +=
        kBoxBytes + chunks * kChunkBytes + static_cast<int64_t>(box.name.size() + box.role.size());
  }
  limits.description += kHeadBytes;
  return limits;
}

Bytes EncodeMemoryShard(const FilePart& part) {
  ByteWriter out;
  out.Put(part.step);
  out.Put(part.generation);
  out.Put(part.file.bytes);
  out.Put(part.raw_bytes);
  out.Put(static_cast<uint32_t>(part.boxes.size()));
  for (const FilePart::PartBox& box : part.boxes) {
    PutBox(box, out);
  }
  return out.Take();
}

Result<FilePart> DecodeMemoryShard(std::span<const std::byte> description) {
  ByteReader in(description);
  FilePart part;
  HEDDLE_ASSIGN_OR_RETURN(part.step, in.Get<int64_t>());
  HEDDLE_ASSIGN_OR_RETURN(part.generation, in.Get<int64_t>());
  HEDDLE_ASSIGN_OR_RETURN(part.file.bytes, in.Get<int64_t>());
  HEDDLE_ASSIGN_OR_RETURN(part.raw_bytes, in.Get<int64_t>());
  HEDDLE_ASSIGN_OR_RETURN(const auto boxes, in.Get<uint32_t>());
  for (uint32_t i = 0; i < boxes; ++i) {
    HEDDLE_ASSIGN_OR_RETURN(auto box, GetBox(in));
    part.boxes.push_back(std::move(box));
  }
  if (in.left() > 0) {
    return DataLossError("{} bytes follow the last of {} boxes", in.left(), boxes);
  }
  return part;
}

Status CheckMemoryShard(const FilePart& part, std::span<const StoredBox> boxes) {
  std::map<std::pair<TensorKey, Shape>, const StoredBox*> wanted;
  int64_t raw = 0;
  for (const StoredBox& box : boxes) {
    wanted.emplace(std::pair(box.tensor().key(), box.box.offset), &box);
    raw += ElementCount(box.box.extent) * SizeOf(box.dtype);
  }
  if (part.boxes.size() != boxes.size() || part.raw_bytes != raw) {
    return DataLossError("a part of {} boxes and {} bytes, {} and {} expected", part.boxes.size(),
                         part.raw_bytes, boxes.size(), raw);
  }
  for (const FilePart::PartBox& box : part.boxes) {
    const auto found = wanted.find({box.tensor.key(), box.record.box.offset});
    if (found == wanted.end() || found->second->tensor() != box.tensor ||
        found->second->box != box.record.box || box.record.stored_as) {
      return DataLossError("tensor '{}' ({}): {} of {} is not what this part should hold",
                           box.tensor.name, box.tensor.role, DTypeName(box.tensor.dtype),
                           ToString(box.tensor.shape));
    }
    wanted.erase(found);  // So that none comes twice.
  }
  return ValidateMemoryShard(part);
}

Result<std::unique_ptr<Reader>> ReaderOver(
    const std::vector<std::shared_ptr<const MemoryShard>>& parts) {
  Manifest manifest;
  std::vector<std::unique_ptr<SourceFile>> files;
  std::map<std::pair<std::string, std::string>, TensorRecord> tensors;
  for (const auto& part : parts) {
    manifest.step = part->part.step;
    manifest.generation = part->part.generation;
    for (const FilePart::PartBox& box : part->part.boxes) {
      TensorRecord& tensor = tensors[{box.tensor.role, box.tensor.name}];
      tensor.info = box.tensor;
      tensor.boxes.push_back(box.record);
      tensor.boxes.back().file = static_cast<int64_t>(files.size());
    }
    manifest.files.push_back(part->part.file);
    files.push_back(std::make_unique<MemoryFile>(
        fmt::format("the snapshot of step {} in memory, part {}", manifest.step, files.size()),
        part));
  }
  for (auto& [key, tensor] : tensors) {
    manifest.tensors.push_back(std::move(tensor));
  }
  std::string origin = fmt::format("the snapshot of step {} in memory", manifest.step);
  return Reader::Over(std::move(manifest), std::move(files), std::move(origin));
}

}  // namespace heddle::checkpoint
