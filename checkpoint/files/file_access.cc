#include "checkpoint/files/file_access.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/system/unique_fd.h"

namespace heddle::checkpoint {

namespace {

class LocalFile : public SourceFile {
 public:
  LocalFile(std::string path, int64_t bytes, UniqueFd fd)
      : SourceFile(std::move(path), bytes),
        fd_(std::move(fd)) {}

  Status ReadAt(int64_t offset, std::span<std::byte> out) const override {
    while (!out.empty()) {
      const ssize_t got = ::pread(fd_.get(), out.data(), out.size(), offset);
      if (got < 0 && errno == EINTR) {
        continue;
      }
      if (got < 0) {
        return ErrnoError(errno, "read " + name());
      }
      if (got == 0) {
        return DataLossError("{}: ends at byte {}, {} more expected", name(), offset, out.size());
      }
      offset += got;
      out = out.subspan(static_cast<size_t>(got));
    }
    return Status::Ok();
  }

 private:
  const UniqueFd fd_;
};

}  // namespace

Result<std::unique_ptr<SourceFile>> OpenRegularFile(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) {
    return ErrnoError(errno, "open " + path);
  }
  struct stat facts {};
  if (::fstat(fd.get(), &facts) != 0) {
    return ErrnoError(errno, "stat " + path);
  }
  if (!S_ISREG(facts.st_mode)) {
    return DataLossError("{}: not a regular file", path);
  }
  return std::unique_ptr<SourceFile>(
      std::make_unique<LocalFile>(path, facts.st_size, std::move(fd)));
}

std::string CombineBlockHashes(std::span<const Hash128Bytes> hashes) {
  return Hash128Hex(std::as_bytes(hashes));
}

Result<std::string> HashFile(const SourceFile& file, const std::function<void(int64_t)>& read) {
  std::vector<std::byte> block(static_cast<size_t>(std::min(kHashBlockBytes, file.bytes())));
  std::vector<Hash128Bytes> hashes;
  for (int64_t at = 0; at < file.bytes(); at += kHashBlockBytes) {
    const auto part =
        std::span(block).first(static_cast<size_t>(std::min(kHashBlockBytes, file.bytes() - at)));
    HEDDLE_RETURN_IF_ERROR(file.ReadAt(at, part));
    hashes.push_back(Hash128(part));
    if (read) {
      read(static_cast<int64_t>(part.size()));
    }
  }
  return CombineBlockHashes(hashes);
}

Result<FileRecord> DescribeFile(const std::string& folder, const std::string& name) {
  const std::string path = folder + "/" + name;
  HEDDLE_ASSIGN_OR_RETURN(const auto file, OpenRegularFile(path));
  HEDDLE_ASSIGN_OR_RETURN(std::string hash, HashFile(*file));
  return FileRecord{.name = name, .bytes = file->bytes(), .hash = std::move(hash)};
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

}  // namespace heddle::checkpoint
