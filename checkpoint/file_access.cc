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

#include "base/unique_fd.h"

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

Result<std::string> HashFile(const SourceFile& file, const std::function<void(int64_t)>& read) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              XXH3_freeState);
  XXH3_128bits_reset(state.get());
  constexpr int64_t kPiece = int64_t{4} << 20;
  std::vector<std::byte> piece(static_cast<size_t>(std::min(kPiece, file.bytes())));
  for (int64_t at = 0; at < file.bytes(); at += kPiece) {
    const auto part =
        std::span(piece).first(static_cast<size_t>(std::min(kPiece, file.bytes() - at)));
    HEDDLE_RETURN_IF_ERROR(file.ReadAt(at, part));
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
  HEDDLE_ASSIGN_OR_RETURN(const auto file, OpenRegularFile(path));
  HEDDLE_ASSIGN_OR_RETURN(std::string hash, HashFile(*file));
  return FileRecord{.name = name, .bytes = file->bytes(), .hash = std::move(hash)};
}

}  // namespace heddle::checkpoint
