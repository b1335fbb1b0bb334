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
