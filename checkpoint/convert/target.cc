#include "checkpoint/convert/target.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "checkpoint/format/manifest.h"
#include "checkpoint/formats/format.h"
#include "checkpoint/storage/storage.h"

namespace heddle::checkpoint {

namespace {

namespace fs = std::filesystem;

bool IsOurs(const fs::directory_entry& entry) {
  std::error_code error;
  const std::string name = entry.path().filename().string();
  const bool known = name == "config.json" || name == kManifestName || name.ends_with(".h5") ||
                     name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json") ||
                     (name.starts_with("pytorch_model") &&
                      (name.ends_with(".bin") || name.ends_with(".bin.index.json")));
  return known && entry.is_regular_file(error);
}

Status CheckFolder(const std::string& target) {
  std::error_code error;
  fs::directory_iterator entries(target, error);
  for (const fs::directory_iterator end; !error && entries != end; entries.increment(error)) {
    if (!IsOurs(*entries)) {
      return AlreadyExistsError("{} holds '{}', which would be lost: it is not replaced", target,
                                entries->path().filename().string());
    }
  }
  return error ? ErrnoError(error.value(), "list " + target) : Status::Ok();
}

/// Whether `inner` lies below `outer`.
bool LiesIn(const fs::path& inner, const fs::path& outer) {
  return inner != outer &&
         std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

}  // namespace

Status CheckTarget(const std::string& source, const std::string& target, bool overwrite) {
  if (IsUrl(target)) {
    return InvalidArgumentError("{}: models are written to paths, not to URLs", target);
  }
  std::error_code error;
  const fs::path real_source = fs::weakly_canonical(source, error);
  const fs::path real_target = fs::weakly_canonical(target, error);
  if (LiesIn(real_source, real_target) || LiesIn(real_target, real_source)) {
    return InvalidArgumentError("{} and {} lie one in the other: choose another place", source,
                                target);
  }
  const auto facts = fs::symlink_status(target, error);
  if (!fs::exists(facts)) {
    return Status::Ok();
  }
  if (!overwrite) {
    return AlreadyExistsError("{} exists; --overwrite replaces it", target);
  }
  if (fs::is_directory(facts)) {
    return CheckFolder(target);
  }
  if (!fs::is_regular_file(facts) || !OpenModel(target).ok()) {
    return AlreadyExistsError("{} exists and is no model: it is not replaced", target);
  }
  return Status::Ok();
}

}  // namespace heddle::checkpoint
