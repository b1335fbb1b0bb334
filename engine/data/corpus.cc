#include "engine/data/corpus.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include <fcntl.h>
#include <sys/stat.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "engine/data/file_kind.h"

namespace heddle::data {
namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 20;
constexpr int64_t kTailBytes = 1024;

int64_t TokenAt(std::span<const std::byte> raw, size_t index, int64_t token_bytes) {
  uint32_t token = 0;  // little-endian, as bytes.h asserts of this machine
  std::memcpy(&token, raw.data() + index * static_cast<size_t>(token_bytes),
              static_cast<size_t>(token_bytes));
  return token;
}

}  // namespace

Result<std::unique_ptr<Corpus>> Corpus::Open(Format format,
                                             const std::vector<Source>& sources,
                                             int64_t vocabulary) {
  std::unique_ptr<Corpus> corpus(new Corpus(format, vocabulary));
  if (format == Format::kText) {
    corpus->vocabulary_floor_ = 256;
  }
  std::vector<std::string> skipped;
  for (const Source& source : sources) {
    HEDDLE_RETURN_IF_ERROR(corpus->Add(source, skipped));
  }
  if (!skipped.empty()) {
    constexpr size_t kNamed = 3;
    std::string names = skipped.front();
    for (size_t i = 1; i < std::min(skipped.size(), kNamed); ++i) {
      names += ", " + skipped[i];
    }
    LogInfo("data: skipped {} binary files: {}{}", skipped.size(), names,
            skipped.size() > kNamed ? ", …" : "");
  }
  if (corpus->files_.empty()) {
    return InvalidArgumentError(
        "{}: no data: {}", sources.empty() ? "data" : sources.front().path,
        skipped.empty() ? "every file is empty" : "every file is binary or empty");
  }
  return corpus;
}

Status Corpus::Add(const Source& source, std::vector<std::string>& skipped) {
  File file;
  file.path = source.path;
  // O_NONBLOCK: a FIFO must not hold the open() up.
  file.fd = UniqueFd(::open(source.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat facts {};
  if (!file.fd.valid() || ::fstat(file.fd.get(), &facts) != 0) {
    return ErrnoError(errno, "open " + source.path);
  }
  if (!S_ISREG(facts.st_mode)) {
    return InvalidArgumentError("{}: not a regular file", source.path);
  }
  file.bytes = facts.st_size;
  if (file.bytes == 0) {
    return source.named ? InvalidArgumentError("{}: empty", source.path) : Status::Ok();
  }
  HEDDLE_RETURN_IF_ERROR(RefuseOtherKinds(file));
  if (file.bytes % token_bytes() != 0) {
    return InvalidArgumentError("{}: {} bytes are no whole number of {}-byte tokens", source.path,
                                file.bytes, token_bytes());
  }
  if (file.bytes <= kInMemoryBytes) {
    Bytes content(static_cast<size_t>(file.bytes));
    HEDDLE_RETURN_IF_ERROR(ReadBytes(file, 0, content));
    file.content = std::move(content);
    file.fd.Reset();
  }
  const uint64_t fingerprint_before = fingerprint_;
  if (const Status status = LookThrough(file); !status.ok()) {
    // Only a NUL byte gives this code: a folder may hold binary files beside its texts.
    if (status.code() != StatusCode::kOutOfRange) {
      return status;
    }
    if (source.named) {
      return InvalidArgumentError("{}", status.message());
    }
    fingerprint_ = fingerprint_before;
    skipped.push_back(source.path);
    return Status::Ok();
  }
  const bool joined = format_ == Format::kText && !files_.empty();
  file.first = size_ + (joined ? 1 : 0);
  size_ = file.first + file.bytes / token_bytes();
  files_.push_back(std::move(file));
  return Status::Ok();
}

Status Corpus::RefuseOtherKinds(const File& file) const {
  Bytes head(static_cast<size_t>(std::min(kHeadBytes, file.bytes)));
  HEDDLE_RETURN_IF_ERROR(ReadBytes(file, 0, head));
  if (IsLfsPointer(head, file.bytes)) {
    return InvalidArgumentError(
        "{}: a pointer of Git LFS, not the data: fetch the file itself (git lfs pull)", file.path);
  }
  if (format_ == Format::kText) {
    return Status::Ok();  // A NUL byte tells.
  }
  if (const auto kind = KindOfFile(head, file.bytes)) {
    return InvalidArgumentError(
        "{}: this is {}; data.tokens takes little-endian token ids and nothing else", file.path,
        *kind);
  }
  const int64_t width = WidthOfIds(head, token_bytes());
  if (width != token_bytes()) {
    return InvalidArgumentError("{}: its ids have {} bytes each, and would be read as {}: {}",
                                file.path, width, token_bytes(),
                                width == 4 ? "set data.token_type to uint32"
                                           : "write them with two or four bytes (data.token_type)");
  }
  return Status::Ok();
}

Status Corpus::LookThrough(const File& file) {
  fingerprint_ = Hash64(AsBytes({reinterpret_cast<const char*>(&file.bytes), sizeof(file.bytes)}),
                        fingerprint_);
  const bool whole = scanned_bytes_ + file.bytes <= kScanBytes;
  scanned_bytes_ += whole ? file.bytes : 0;
  Bytes buffer(static_cast<size_t>(std::min(kPieceBytes, file.bytes)));
  std::vector<int32_t> tokens;
  for (int64_t offset = 0; offset < file.bytes;) {
    const int64_t size = std::min(static_cast<int64_t>(buffer.size()), file.bytes - offset);
    const std::span<std::byte> piece = std::span(buffer).first(static_cast<size_t>(size));
    HEDDLE_RETURN_IF_ERROR(ReadBytes(file, offset, piece));
    fingerprint_ = Hash64(piece, fingerprint_);
    if (format_ == Format::kText) {
      const auto nul = std::find(piece.begin(), piece.end(), std::byte{0});
      if (nul != piece.end()) {
        return OutOfRangeError("{}: a NUL byte at {}: this is not a text file", file.path,
                               offset + (nul - piece.begin()));
      }
    } else {
      tokens.resize(piece.size() / static_cast<size_t>(token_bytes()));
      HEDDLE_RETURN_IF_ERROR(Decode(file, offset / token_bytes(), piece, tokens));
      const int64_t largest = *std::max_element(tokens.begin(), tokens.end());
      vocabulary_floor_ = std::max(vocabulary_floor_, largest + 1);
    }
    offset += size;
    if (!whole && offset < file.bytes - kTailBytes) {
      offset = file.bytes - kTailBytes;
    }
  }
  return Status::Ok();
}

Status Corpus::ReadBytes(const File& file, int64_t offset, std::span<std::byte> out) const {
  if (!file.fd.valid()) {
    std::copy_n(file.content.begin() + offset, out.size(), out.begin());
    return Status::Ok();
  }
  while (!out.empty()) {
    const ssize_t got = ::pread(file.fd.get(), out.data(), out.size(), offset);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return ErrnoError(errno, "read " + file.path);
    }
    if (got == 0) {
      return DataLossError("{}: shrank to less than {} bytes while in use", file.path, offset + 1);
    }
    out = out.subspan(static_cast<size_t>(got));
    offset += got;
  }
  return Status::Ok();
}

Status Corpus::Decode(const File& file,
                      int64_t first,
                      std::span<const std::byte> raw,
                      std::span<int32_t> out) const {
  const int64_t limit = vocabulary_ > 0 ? vocabulary_ : std::numeric_limits<int32_t>::max();
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t token = TokenAt(raw, i, token_bytes());
    if (token >= limit) {
      return InvalidArgumentError("{}: token {} at position {} is not below the vocabulary of {}",
                                  file.path, token, first + static_cast<int64_t>(i), limit);
    }
    out[i] = static_cast<int32_t>(token);
  }
  return Status::Ok();
}

Status Corpus::Read(int64_t first, std::span<int32_t> out) const {
  HEDDLE_CHECK(first >= 0 && first + static_cast<int64_t>(out.size()) <= size_,
               "tokens {}+{} of {}", first, out.size(), size_);
  // The last file that starts at or before `first`.
  auto file = std::upper_bound(files_.begin(), files_.end(), first,
                               [](int64_t token, const File& f) { return token < f.first; }) -
              1;
  Bytes raw;
  while (!out.empty()) {
    const int64_t begin = first - file->first;
    const int64_t left = file->bytes / token_bytes() - begin;
    if (left == 0) {
      // Behind a text's last byte: the newline that joins it to the next one, if there is one.
      ++file;
      if (format_ == Format::kText) {
        out.front() = '\n';
        out = out.subspan(1);
        ++first;
      }
      continue;
    }
    const size_t count = std::min(out.size(), static_cast<size_t>(left));
    raw.resize(count * static_cast<size_t>(token_bytes()));
    HEDDLE_RETURN_IF_ERROR(ReadBytes(*file, begin * token_bytes(), raw));
    HEDDLE_RETURN_IF_ERROR(Decode(*file, begin, raw, out.first(count)));
    out = out.subspan(count);
    first += static_cast<int64_t>(count);
  }
  return Status::Ok();
}

std::vector<std::string> Corpus::files() const {
  std::vector<std::string> paths;
  for (const File& file : files_) {
    paths.push_back(file.path);
  }
  return paths;
}

}  // namespace heddle::data
