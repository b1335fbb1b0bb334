#include "checkpoint/formats/pytorch/pytorch.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "checkpoint/formats/shards.h"

namespace heddle::checkpoint {

namespace {

const FileFormat& Files() {
  static const FileFormat kFiles{.name = "pytorch",
                                 .stem = "pytorch_model",
                                 .suffix = ".bin",
                                 .file_suffixes = {".pt", ".bin", ".pth"},
                                 .open = OpenPytorchFile,
                                 .create = CreatePytorchFile};
  return kFiles;
}

bool IsFolder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

const FormatRegistration kPytorch({
    .name = Files().name,
    .rank = 2,  // As for transformers: a folder's safetensors are newer.
    .recognise =
        [](const std::string& path) {
          return IsFolder(path) ? IsModelFolder(Files(), path) : IsPytorchFile(path);
        },
    .open =
        [](const std::string& path) {
          return IsFolder(path) ? OpenModelFolder(Files(), path) : OpenPytorchFile(path);
        },
    .create = [](SinkRequest request) { return CreateModel(Files(), std::move(request)); },
});

}  // namespace

}  // namespace heddle::checkpoint
