#include "checkpoint/files/tensor_index.h"

#include <utility>
#include <vector>

#include "checkpoint/files/hdf5_file.h"
#include "checkpoint/format/layout.h"

namespace heddle::checkpoint {

namespace {

/// Empty when some of the tensor's elements are in no dataset.
std::vector<VirtualSource> SourcesOf(const Manifest& manifest, const TensorRecord& tensor) {
  std::vector<VirtualSource> sources;
  for (const BoxRecord& box : tensor.boxes) {
    if (!box.derived_from.empty()) {
      return {};
    }
    if (!box.chunks.empty()) {
      sources.push_back({.box = box.box,
                         .file = manifest.files[static_cast<size_t>(box.file)].name,
                         .dataset = box.dataset});
    }
  }
  return sources;
}

}  // namespace

Result<FileRecord> WriteTensorIndex(const std::string& folder, const Manifest& manifest) {
  const std::string path = folder + "/" + kTensorIndexName;
  HEDDLE_ASSIGN_OR_RETURN(const auto file,
                          Hdf5File::Create(path, static_cast<int64_t>(manifest.tensors.size()), 0));
  for (const TensorRecord& tensor : manifest.tensors) {
    const TensorInfo& info = tensor.info;
    const auto sources = SourcesOf(manifest, tensor);
    if (!sources.empty()) {
      const std::string name = DatasetName(info.name, info.role, info.shape, WholeBox(info.shape));
      HEDDLE_RETURN_IF_ERROR(file->WriteVirtualDataset(name, info, sources));
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(FileRecord record, file->Close());
  HEDDLE_RETURN_IF_ERROR(file->Sync());
  return record;
}

}  // namespace heddle::checkpoint
