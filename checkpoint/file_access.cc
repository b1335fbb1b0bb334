#include "checkpoint/file_access.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

namespace heddle::checkpoint {

Result<OpenedFile> OpenRegularFile(const std::string& path) {
  OpenedFile file{.fd = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)),
                  .bytes = 0};
  if (!file.fd.valid()) {
    return ErrnoError(errno, "open " + path);
  }
  struct stat facts {};
  if (::fstat(file.fd.get(), &facts) != 0) {
    return ErrnoError(errno, "stat " + path);
  }
  if (!S_ISREG(facts.st_mode)) {
    return DataLossError("{}: not a regular file", path);
  }
  file.bytes = facts.st_size;
  return file;
}

Status ReadAt(int fd, int64_t offset, std::span<std::byte> out, const std::string& path) {
  while (!out.empty()) {
    const ssize_t got = ::pread(fd, out.data(), out.size(), offset);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return ErrnoError(errno, "read " + path);
    }
    if (got == 0) {
      return DataLossError("{}: ends at byte {}, {} more expected", path, offset, out.size());
    }
    offset += got;
    out = out.subspan(static_cast<size_t>(got));
  }
  return Status::Ok();
}

Result<std::string> HashFile(const OpenedFile& file,
                             const std::string& path,
                             const std::function<void(int64_t)>& read) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              XXH3_freeState);
  XXH3_128bits_reset(state.get());
  constexpr int64_t kPiece = int64_t{256} << 10;  // Stays in the second cache.
  std::vector<std::byte> piece(static_cast<size_t>(std::min(kPiece, file.bytes)));
  for (int64_t at = 0; at < file.bytes; at += kPiece) {
    const auto part =
        std::span(piece).first(static_cast<size_t>(std::min(kPiece, file.bytes - at)));
    HEDDLE_RETURN_IF_ERROR(ReadAt(file.fd.get(), at, part, path));
    XXH3_128bits_update(state.get(), part.data(), part.size());
    if (read) {
      read(static_cast<int64_t>(part.size()));
    }
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

Result<FileRecord> DescribeFile(const std::string& folder, const std::string& name) {
  const std::string path = folder + "/" + name;
  HEDDLE_ASSIGN_OR_RETURN(const OpenedFile file, OpenRegularFile(path));
  HEDDLE_ASSIGN_OR_RETURN(std::string hash, HashFile(file, path));
  return FileRecord{.name = name, .bytes = file.bytes, .hash = std::move(hash)};
}

}  // namespace heddle::checkpoint
