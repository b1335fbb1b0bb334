#include "checkpoint/convert/derive.h"

#include <map>
#include <string>

#include "base/bytes.h"
#include "base/tensor/half.h"
#include "checkpoint/format/layout.h"
#include "checkpoint/format/types.h"

namespace heddle::checkpoint {

namespace {

Result<bool> FollowsFrom(const TensorSource& source, size_t master, size_t copy) {
  constexpr int64_t kTileElements = int64_t{4} << 20;
  const DType type = *source.tensors()[copy].dtype;
  const Shape& shape = source.tensors()[copy].shape;
  const ChunkGrid tiles(shape, ContiguousTile(shape, kTileElements));
  Bytes wide;
  Bytes rounded;
  Bytes held;
  for (int64_t i = 0; i < tiles.count(); ++i) {
    const Box tile = tiles.Clipped(i);
    const auto count = static_cast<size_t>(ElementCount(tile.extent));
    wide.resize(count * sizeof(float));
    rounded.resize(count * sizeof(uint16_t));
    held.resize(count * sizeof(uint16_t));
    HEDDLE_RETURN_IF_ERROR(source.Read(master, tile, wide));
    HEDDLE_RETURN_IF_ERROR(source.Read(copy, tile, held));
    RoundFromF32(wide, rounded, type);
    if (rounded != held) {
      return false;
    }
  }
  return true;
}

bool Unchanged(const FileTensor& input, const OutputTensor& output) {
  return input.dtype == output.dtype && output.bytes() > 0;
}

}  // namespace

Status MarkDerived(const TensorSource& source, std::vector<OutputTensor>& outputs) {
  std::map<std::string, size_t> masters;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].role == kMasterRole && outputs[i].dtype == DType::kF32 &&
        Unchanged(source.tensors()[i], outputs[i])) {
      masters.emplace(outputs[i].name, i);
    }
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    OutputTensor& copy = outputs[i];
    const bool narrow = copy.dtype == DType::kBF16 || copy.dtype == DType::kF16;
    const auto master = masters.find(copy.name);
    if (copy.role != kCopyRole || !narrow || master == masters.end() ||
        outputs[master->second].shape != copy.shape || !Unchanged(source.tensors()[i], copy)) {
      continue;
    }
    HEDDLE_ASSIGN_OR_RETURN(const bool follows, FollowsFrom(source, master->second, i));
    if (follows) {
      copy.derived_from = kMasterRole;
    }
  }
  return Status::Ok();
}

}  // namespace heddle::checkpoint
