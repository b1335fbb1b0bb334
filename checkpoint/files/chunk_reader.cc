#include "checkpoint/files/chunk_reader.h"

#include "base/hash.h"
#include "base/tensor/half.h"
#include "checkpoint/format/layout.h"

namespace heddle::checkpoint {

namespace {

Status Named(const Status& status,
             const SourceFile& file,
             const TensorRecord& tensor,
             const BoxRecord& box,
             int64_t index) {
  return status.WithContext("{}: tensor '{}' ({}), box {}, chunk {}", file.name(), tensor.info.name,
                            tensor.info.role, ToString(box.box), index);
}

}  // namespace

Status ChunkReader::CheckHash(const SourceFile& file,
                              const TensorRecord& tensor,
                              const BoxRecord& box,
                              int64_t index) {
  const ChunkRecord& chunk = box.chunks[static_cast<size_t>(index)];
  stored_.resize(static_cast<size_t>(chunk.bytes));
  HEDDLE_RETURN_IF_ERROR(Named(file.ReadAt(chunk.address, stored_), file, tensor, box, index));
  if (Hash64(std::span<const std::byte>(stored_)) != chunk.hash) {
    return Named(DataLossError("the stored bytes do not match their hash"), file, tensor, box,
                 index);
  }
  return Status::Ok();
}

Result<std::span<const std::byte>> ChunkReader::Read(const SourceFile& file,
                                                     const TensorRecord& tensor,
                                                     const BoxRecord& box,
                                                     int64_t index) {
  HEDDLE_RETURN_IF_ERROR(CheckHash(file, tensor, box, index));
  if (box.raw) {
    return std::span<const std::byte>(stored_);
  }
  const int64_t elements = ChunkGrid(box.box.extent, box.chunk).chunk_elements();
  const int64_t element = SizeOf(box.stored_as.value_or(tensor.info.dtype));
  raw_.resize(static_cast<size_t>(elements * element));
  HEDDLE_RETURN_IF_ERROR(Named(decoder_.Decode(stored_, element, raw_), file, tensor, box, index));
  if (!box.stored_as) {
    return std::span<const std::byte>(raw_);
  }
  wide_.resize(static_cast<size_t>(elements * SizeOf(tensor.info.dtype)));
  WidenToF32(raw_, *box.stored_as, wide_);
  return std::span<const std::byte>(wide_);
}

}  // namespace heddle::checkpoint
