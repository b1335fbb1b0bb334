#include "checkpoint/memory_part.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/codec.h"
#include "checkpoint/file_access.h"
#include "checkpoint/layout.h"
#include "checkpoint/manifest.h"

namespace heddle::checkpoint {

namespace {

/// Chunks of a large box are no smaller, whoever chose them.
constexpr int64_t kLeastChunk = int64_t{16} << 10;
/// Of a box's or a chunk's text beside names: numbers of up to 20 digits.
constexpr int64_t kBoxText = 4096;
constexpr int64_t kChunkText = 64;

class MemoryFile : public SourceFile {
 public:
  MemoryFile(std::string name, std::shared_ptr<const MemoryPart> part)
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
  const std::shared_ptr<const MemoryPart> part_;
};

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
    // A byte of a name takes up to six characters, and both the dataset and the tensor have it.
    limits.text += kBoxText + chunks * kChunkText +
                   12 * static_cast<int64_t>(box.name.size() + box.role.size());
  }
  limits.text += kBoxText;
  return limits;
}

Status CheckMemoryPart(const FilePart& part, std::span<const StoredBox> boxes) {
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
  return ValidateMemoryPart(part);
}

Result<std::unique_ptr<Reader>> ReaderOver(std::vector<std::shared_ptr<const MemoryPart>> parts) {
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
  return Reader::Over(std::move(manifest), std::move(files),
                      fmt::format("the snapshot of step {} in memory", manifest.step));
}

}  // namespace heddle::checkpoint
