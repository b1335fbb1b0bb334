#include "checkpoint/convert/copy.h"

#include "base/bytes.h"
#include "checkpoint/format/layout.h"

namespace heddle::checkpoint {

namespace {

constexpr int64_t kTileBytes = int64_t{32} << 20;

}  // namespace

Status CopyTensor(const TensorSource& source,
                  size_t index,
                  DType dtype,
                  TensorSink& sink,
                  const std::function<void(int64_t)>& progress) {
  const FileTensor& tensor = source.tensors()[index];
  if (tensor.bytes == 0) {
    return Status::Ok();
  }
  const int64_t element = SizeOf(*tensor.dtype);
  const ChunkGrid tiles(tensor.shape, ContiguousTile(tensor.shape, kTileBytes / element));
  Bytes read;
  Bytes cast;
  for (int64_t i = 0; i < tiles.count(); ++i) {
    const Box box = tiles.Clipped(i);
    const int64_t count = ElementCount(box.extent);
    read.resize(static_cast<size_t>(count * element));
    HEDDLE_RETURN_IF_ERROR(source.Read(index, box, read));
    std::span<const std::byte> bytes = read;
    if (dtype != *tensor.dtype) {
      cast.resize(static_cast<size_t>(count * SizeOf(dtype)));
      HEDDLE_RETURN_IF_ERROR(
          Cast(read, *tensor.dtype, cast, dtype).WithContext("tensor '{}'", tensor.name));
      bytes = cast;
    }
    HEDDLE_RETURN_IF_ERROR(sink.Append(bytes));
    if (progress) {
      progress(static_cast<int64_t>(bytes.size()));
    }
  }
  return Status::Ok();
}

}  // namespace heddle::checkpoint
