#include "checkpoint/storage/storage.h"

#include <array>

#include "checkpoint/storage/local_storage.h"
#include "checkpoint/storage/s3_file.h"
#include "checkpoint/storage/s3_storage.h"

namespace heddle::checkpoint {

namespace {

/// A kind of place that is told by its URL's scheme.
struct Kind {
  std::string_view scheme;
  Result<std::unique_ptr<Storage>> (*open_storage)(const std::string& root);
  Result<std::unique_ptr<SourceFile>> (*open_file)(const std::string& url);
};

constexpr std::array kKinds = {
    Kind{.scheme = "s3://", .open_storage = OpenS3Storage, .open_file = OpenS3File}};

Result<const Kind*> KindOf(const std::string& url) {
  for (const Kind& kind : kKinds) {
    if (url.starts_with(kind.scheme)) {
      return &kind;
    }
  }
  return InvalidArgumentError("{}: checkpoints lie in paths or at s3://BUCKET/PREFIX", url);
}

}  // namespace

bool IsUrl(std::string_view path) {
  return path.find("://") != std::string_view::npos;
}

Result<std::unique_ptr<Storage>> OpenStorage(const std::string& root) {
  if (!IsUrl(root)) {
    return OpenLocalStorage(root);
  }
  HEDDLE_ASSIGN_OR_RETURN(const Kind* kind, KindOf(root));
  return kind->open_storage(root);
}

Result<std::unique_ptr<SourceFile>> OpenFile(const std::string& path) {
  if (!IsUrl(path)) {
    return OpenRegularFile(path);
  }
  HEDDLE_ASSIGN_OR_RETURN(const Kind* kind, KindOf(path));
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
