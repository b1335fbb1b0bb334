#include "checkpoint/storage/storage.h"

#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"

namespace heddle::checkpoint {

namespace {

/// By scheme. It is filled before main() and only read after it.
std::map<std::string, StorageKind>& Kinds() {
  static std::map<std::string, StorageKind> kinds;
  return kinds;
}

Result<const StorageKind*> KindOf(const std::string& path) {
  const size_t end = path.find("://");
  const auto found = Kinds().find(end == std::string::npos ? "" : path.substr(0, end + 3));
  if (found != Kinds().end()) {
    return &found->second;
  }
  std::vector<std::string_view> places;
  for (const auto& [scheme, kind] : Kinds()) {
    places.push_back(kind.place);
  }
  return InvalidArgumentError("{}: checkpoints lie {}", path, fmt::join(places, " or "));
}

}  // namespace

StorageRegistration::StorageRegistration(StorageKind kind) {
  const std::string scheme = kind.scheme;
  const bool is_new = Kinds().emplace(scheme, std::move(kind)).second;
  HEDDLE_CHECK(is_new, "two kinds of storage have the scheme '{}'", scheme);
}

bool IsUrl(std::string_view path) {
  return path.find("://") != std::string_view::npos;
}

Result<std::unique_ptr<Storage>> OpenStorage(const std::string& root) {
  HEDDLE_ASSIGN_OR_RETURN(const StorageKind* kind, KindOf(root));
  return kind->open_storage(root);
}

Result<std::unique_ptr<SourceFile>> OpenFile(const std::string& path) {
  HEDDLE_ASSIGN_OR_RETURN(const StorageKind* kind, KindOf(path));
  return kind->open_file(path);
}

Result<std::string> ReadText(const std::string& path, int64_t most_bytes) {
  HEDDLE_ASSIGN_OR_RETURN(const auto file, OpenFile(path));
  if (file->bytes() > most_bytes) {
    return ResourceExhaustedError("{}: {} bytes, at most {} are read", path, file->bytes(),
                                  most_bytes);
  }
  std::string text(static_cast<size_t>(file->bytes()), '\0');
  HEDDLE_RETURN_IF_ERROR(file->ReadAt(0, std::as_writable_bytes(std::span(text))));
  return text;
}

std::string JoinPath(const std::string& folder, std::string_view name) {
  const size_t end = folder.find_last_not_of('/');
  return folder.substr(0, end == std::string::npos ? 0 : end + 1) + "/" + std::string(name);
}

bool IsUnreachable(const Status& status) {
  return status.code() == StatusCode::kUnavailable ||
         status.code() == StatusCode::kDeadlineExceeded ||
         status.code() == StatusCode::kUnauthenticated;
}

}  // namespace heddle::checkpoint
