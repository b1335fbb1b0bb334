#include "checkpoint/formats/format.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include "checkpoint/files/file_access.h"
#include "checkpoint/storage/storage.h"

namespace heddle::checkpoint {

namespace {

std::vector<Format>& Registry() {
  static std::vector<Format> formats;
  return formats;
}

std::string Names() {
  std::vector<std::string> names;
  for (const Format& format : Formats()) {
    names.push_back(format.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

FormatRegistration::FormatRegistration(Format format) {
  auto& formats = Registry();
  const auto place = std::lower_bound(
      formats.begin(), formats.end(), format,
      [](const Format& left, const Format& right) { return left.rank < right.rank; });
  formats.insert(place, std::move(format));
}

const std::vector<Format>& Formats() {
  return Registry();
}

Result<const Format*> FindFormat(const std::string& name) {
  for (const Format& format : Formats()) {
    if (format.name == name) {
      return &format;
    }
  }
  return InvalidArgumentError("format '{}' is not known; there are: {}", name, Names());
}

Status CheckNoPlaceholder(const std::string& path) {
  HEDDLE_ASSIGN_OR_RETURN(const auto file, OpenRegularFile(path));
  if (file->bytes() == 0) {
    return InvalidArgumentError("{}: the file is empty", path);
  }
  std::string head(static_cast<size_t>(std::min<int64_t>(file->bytes(), 64)), '\0');
  HEDDLE_RETURN_IF_ERROR(file->ReadAt(0, std::as_writable_bytes(std::span(head))));
  if (head.starts_with("version https://git-lfs")) {
    return InvalidArgumentError(
        "{}: a pointer of Git LFS, not the model: fetch the file itself (git lfs pull)", path);
  }
  if (head.starts_with("<!DOCTYPE") || head.starts_with("<!doctype") || head.starts_with("<html")) {
    return InvalidArgumentError("{}: a web page, not a model: the download failed", path);
  }
  return Status::Ok();
}

Result<std::unique_ptr<TensorSource>> OpenModel(const std::string& path) {
  struct stat facts {};
  if (!IsUrl(path) && ::stat(path.c_str(), &facts) != 0) {
    return ErrnoError(errno, "open " + path);
  }
  for (const Format& format : Formats()) {
    if (format.recognise(path)) {
      return format.open(path);
    }
  }
  if (S_ISREG(facts.st_mode)) {
    HEDDLE_RETURN_IF_ERROR(CheckNoPlaceholder(path));
  }
  return InvalidArgumentError("{}: no model of a known format ({})", path, Names());
}

}  // namespace heddle::checkpoint
