#include "checkpoint/storage/manifest_file.h"

#include <optional>
#include <utility>

#include "base/system/file.h"
#include "checkpoint/format/layout.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/storage/storage.h"

namespace heddle::checkpoint {

Result<Manifest> LoadManifest(const std::string& path) {
  const std::string file = JoinPath(path, kManifestName);
  auto text = ReadText(file, kManifestLimit);
  if (IsUnreachable(text.status())) {
    return text.status();
  }
  if (text.status().code() == StatusCode::kNotFound || (!IsUrl(file) && !FileExists(file))) {
    if (FileExists(path + "/.") && StepOfFolder(path)) {
      return DataLossError("{}: {} is missing", path, kManifestName);
    }
    return InvalidArgumentError("{}: not a checkpoint (no {})", path, kManifestName);
  }
  if (!text.ok()) {
    return text.status().code() == StatusCode::kInvalidArgument
               ? text.status()
               : DataLossError("{}", text.status().message());
  }
  auto manifest = ParseManifest(*text);
  HEDDLE_RETURN_IF_ERROR(manifest.status().WithContext("{}", file));
  // A run that resumes from a checkpoint finds it by its folder's name.
  if (const auto step = StepOfFolder(path); step && *step != manifest->step) {
    return DataLossError("{}: it is of step {}: it does not belong into this folder", file,
                         manifest->step);
  }
  return manifest;
}

}  // namespace heddle::checkpoint
