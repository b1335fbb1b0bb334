#include "checkpoint/files/block_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "checkpoint/files/staging.h"

namespace heddle::checkpoint {

namespace {

/// Blocks in memory: the first, which a file's metadata begin in and its writer comes back to, the
/// one that grows, and two more.
constexpr size_t kKept = 4;
/// What a disk takes without the page cache begins and ends at multiples of this, in memory too.
constexpr int64_t kSector = 4096;

Status WriteError(int error, const std::string& path) {
  // A file size limit is a quota to us: the caller's answer is that of a full disk.
  if (error == EFBIG || error == ENOSPC || error == EDQUOT) {
    return ResourceExhaustedError("write {}: {}", path, ErrnoError(error, "no room").message());
  }
  return ErrnoError(error, "write " + path);
}

int64_t BlockCount(int64_t bytes) {
  return (bytes + kHashBlockBytes - 1) / kHashBlockBytes;
}

}  // namespace

struct BlockFile::Block {
  int64_t index = 0;
  int64_t filled = 0;  ///< Bytes written into it since it is in memory, each time they were.
  int64_t used = 0;    ///< When, by `used_`.
  int64_t valid = 0;   ///< Bytes from its begin that are content; zeros come after them.
  bool dirty = false;
  /// Whole pages of its own: malloc, once given back a block as large, would keep memory of that
  /// size for ever.
  StagingBuffer memory;
  std::span<std::byte> bytes() { return {memory.data(), static_cast<size_t>(kHashBlockBytes)}; }
  int64_t begin() const { return index * kHashBlockBytes; }
  /// Makes at least so many bytes valid.
  void Extend(int64_t size) {
    if (size > valid) {
      std::fill(memory.data() + valid, memory.data() + size, std::byte{0});
      valid = size;
    }
  }
};

BlockFile::BlockFile(std::string path, UniqueFd fd, bool direct)
    : path_(std::move(path)),
      fd_(std::move(fd)),
      direct_(direct) {}

BlockFile::~BlockFile() = default;

Result<std::unique_ptr<BlockFile>> BlockFile::Create(const std::string& path, bool direct) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC;
  UniqueFd fd(::open(path.c_str(), kFlags | (direct ? O_DIRECT : 0), 0644));
  if (!fd.valid() && errno == EINVAL && direct) {
    direct = false;
    fd = UniqueFd(::open(path.c_str(), kFlags, 0644));
  }
  if (!fd.valid()) {
    return ErrnoError(errno, "create " + path);
  }
  return std::unique_ptr<BlockFile>(new BlockFile(path, std::move(fd), direct));
}

int64_t BlockFile::SizeOf(int64_t index) const {
  return std::min(kHashBlockBytes, bytes_ - index * kHashBlockBytes);
}

void BlockFile::Fail(const Status& status) {
  if (status_.ok()) {
    status_ = status;
  }
}

/// Reads what the file has of a block that has been in memory before.
Status BlockFile::Load(Block& block) {
  int64_t at = 0;
  while (at < kHashBlockBytes) {
    const ssize_t got = ::pread(fd_.get(), block.memory.data() + at,
                                static_cast<size_t>(kHashBlockBytes - at), block.begin() + at);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return ErrnoError(errno, "read " + path_);
    }
    at += got;
    if (got == 0 || (direct_ && at % kSector != 0)) {  // The file's end.
      break;
    }
  }
  block.valid = at;
  return Status::Ok();
}

/// The block in memory, for which another may have to go; null after a failure.
BlockFile::Block* BlockFile::Get(int64_t index) {
  const auto found = std::ranges::find(blocks_, index, &Block::index);
  if (found != blocks_.end()) {
    (*found)->used = ++used_;
    return found->get();
  }
  Block* block = nullptr;
  if (blocks_.size() < kKept) {
    auto fresh = std::make_unique<Block>();
    if (!fresh->memory.Reserve(kHashBlockBytes).ok()) {
      Fail(ResourceExhaustedError("write {}: no memory for a block", path_));
      return nullptr;
    }
    block = blocks_.emplace_back(std::move(fresh)).get();
  } else {
    const auto leaves = [](const auto& one) { return std::pair(one->index == 0, one->used); };
    block = std::ranges::min_element(blocks_, {}, leaves)->get();
    Flush(*block);
  }
  block->index = index;
  block->filled = 0;
  block->used = ++used_;
  block->dirty = false;
  block->valid = 0;
  const auto at = static_cast<size_t>(index);
  if (at < hashes_.size() && hashes_[at].size > 0) {
    Fail(Load(*block));
  }
  return status_.ok() ? block : nullptr;
}

/// Writes the first `size` bytes of a block. A file system that refuses to go past the page cache
/// is taken at its word; a write that was cut short goes on in it, because what is left has no
/// sector's begin.
Status BlockFile::WriteOut(const Block& block, int64_t size) {
  for (int64_t at = 0; at < size;) {
    const ssize_t put = ::pwrite(fd_.get(), block.memory.data() + at,
                                 static_cast<size_t>(size - at), block.begin() + at);
    const int error = put == 0 ? ENOSPC : errno;
    if (put > 0) {
      at += put;
    } else if (put == 0 || (error != EINTR && !(error == EINVAL && direct_))) {
      return WriteError(error, path_);
    }
    if (direct_ && (put > 0 ? at % kSector != 0 : error == EINVAL)) {
      direct_ = false;
      if (::fcntl(fd_.get(), F_SETFL, 0) != 0) {
        return ErrnoError(errno, "write " + path_);
      }
    }
  }
  if (!direct_) {  // The disk works while chunks are still being compressed.
    ::sync_file_range(fd_.get(), block.begin(), size, SYNC_FILE_RANGE_WRITE);
  }
  return Status::Ok();
}

void BlockFile::Flush(Block& block) {
  if (!status_.ok() || !block.dirty) {
    return;
  }
  block.dirty = false;
  const auto index = static_cast<size_t>(block.index);
  const int64_t size = SizeOf(block.index);
  // Zeros up to the next sector are cut off at the end.
  const int64_t stored = direct_ ? (size + kSector - 1) / kSector * kSector : size;
  block.Extend(stored);
  hashes_.resize(std::max(hashes_.size(), index + 1));
  hashes_[index] = {.size = size, .hash = Hash128(block.bytes().first(static_cast<size_t>(size)))};
  Fail(WriteOut(block, stored));
}

void BlockFile::Read(int64_t offset, std::span<std::byte> out) {
  while (!out.empty()) {
    const int64_t at = offset % kHashBlockBytes;
    const auto part = out.first(std::min(out.size(), static_cast<size_t>(kHashBlockBytes - at)));
    Block* const block = status_.ok() ? Get(offset / kHashBlockBytes) : nullptr;
    if (block == nullptr) {
      std::ranges::fill(out, std::byte{0});
      return;
    }
    block->Extend(at + static_cast<int64_t>(part.size()));
    std::memcpy(part.data(), block->memory.data() + at, part.size());
    offset += static_cast<int64_t>(part.size());
    out = out.subspan(part.size());
  }
}

void BlockFile::Write(int64_t offset, std::span<const std::byte> bytes) {
  bytes_ = std::max(bytes_, offset + static_cast<int64_t>(bytes.size()));
  while (!bytes.empty() && status_.ok()) {
    const int64_t at = offset % kHashBlockBytes;
    const auto part =
        bytes.first(std::min(bytes.size(), static_cast<size_t>(kHashBlockBytes - at)));
    Block* const block = Get(offset / kHashBlockBytes);
    if (block == nullptr) {
      return;
    }
    block->Extend(at);
    std::memcpy(block->memory.data() + at, part.data(), part.size());
    block->valid = std::max(block->valid, at + static_cast<int64_t>(part.size()));
    block->dirty = true;
    block->filled += static_cast<int64_t>(part.size());
    offset += static_cast<int64_t>(part.size());
    bytes = bytes.subspan(part.size());
  }
}

void BlockFile::FlushFull() {
  for (const auto& block : blocks_) {
    if (block->filled >= kHashBlockBytes) {
      block->filled = 0;
      Flush(*block);
    }
  }
}

void BlockFile::Resize(int64_t bytes) {
  if (bytes < bytes_) {
    const int64_t cut = bytes % kHashBlockBytes;
    Block* const block = cut > 0 && status_.ok() ? Get(bytes / kHashBlockBytes) : nullptr;
    if (block != nullptr) {
      block->valid = std::min(block->valid, cut);
      block->dirty = true;
    }
    std::erase_if(blocks_, [&](const auto& behind) { return behind->begin() >= bytes; });
    hashes_.resize(std::min(hashes_.size(), static_cast<size_t>(BlockCount(bytes))));
    if (status_.ok() && ::ftruncate(fd_.get(), bytes) != 0) {
      Fail(WriteError(errno, path_));
    }
  }
  bytes_ = bytes;
}

Result<FileRecord> BlockFile::Finish() {
  for (const auto& block : blocks_) {
    Flush(*block);
  }
  // Blocks that nothing was written to, and those that were hashed as the last one before the file
  // grew on.
  hashes_.resize(static_cast<size_t>(BlockCount(bytes_)));
  for (int64_t index = 0; index < BlockCount(bytes_) && status_.ok(); ++index) {
    if (hashes_[static_cast<size_t>(index)].size != SizeOf(index)) {
      if (Block* const block = Get(index); block != nullptr) {
        block->dirty = true;
        Flush(*block);
      }
    }
  }
  // Whole sectors were written.
  if (status_.ok() && ::ftruncate(fd_.get(), bytes_) != 0) {
    Fail(WriteError(errno, path_));
  }
  HEDDLE_RETURN_IF_ERROR(status_);
  std::vector<Hash128Bytes> hashes(hashes_.size());
  std::ranges::transform(hashes_, hashes.begin(), &Hashed::hash);
  return FileRecord{.name = path_.substr(path_.rfind('/') + 1),
                    .bytes = bytes_,
                    .hash = CombineBlockHashes(hashes)};
}

Status BlockFile::Sync() {
  return ::fsync(fd_.get()) == 0 ? Status::Ok() : WriteError(errno, path_);
}

}  // namespace heddle::checkpoint
