/// \file
/// Files as one long sequence of tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/system/unique_fd.h"

namespace heddle::data {

enum class Format : uint8_t {
  kText,    ///< Bytes are tokens: a vocabulary of 256.
  kUint16,  ///< Token ids, two bytes little-endian, no header: what nanoGPT writes.
  kUint32,  ///< The same with four bytes.
};

/// Small files are held in memory, large ones are read as they are needed; nothing is mapped,
/// because a mapped file that shrinks kills its reader.
///
/// Text files are joined by one newline each; token files are joined without anything between. Up
/// to kScanBytes are looked through when the corpus is opened: text for NUL bytes, tokens for ids
/// that are too large. Of what lies beyond, each file's first MiB and last KiB are; ids are checked
/// again as they are read. Thread: any, once open.
class Corpus {
 public:
  static constexpr int64_t kScanBytes = int64_t{1} << 30;
  static constexpr int64_t kInMemoryBytes = int64_t{16} << 20;

  /// A file, and whether the user named it himself: then it is refused where one found in a folder
  /// would be skipped.
  struct Source {
    std::string path;
    bool named = true;
  };

  /// `vocabulary`: ids must be smaller; 0 for no limit but that of int32.
  /// Errors: kInvalidArgument   NUL byte in a named text file, size no whole number of tokens, id
  /// too large
  ///                            (with file and position), not a regular file, named file empty, no
  ///                            token at all, token file of another kind or of wider ids, a pointer of Git LFS
  ///         the system's       a file cannot be read
  static Result<std::unique_ptr<Corpus>> Open(Format format,
                                              const std::vector<Source>& sources,
                                              int64_t vocabulary);

  /// Number of tokens.
  int64_t size() const { return size_; }
  /// The largest id seen so far plus one; 256 for text.
  int64_t vocabulary_floor() const { return vocabulary_floor_; }
  /// Depends on every file's size and on every byte that was looked through, not on names.
  uint64_t fingerprint() const { return fingerprint_; }
  /// Files in use, in order.
  std::vector<std::string> files() const;

  /// Tokens [first, first + out.size()), which must exist.
  /// Errors: kInvalidArgument   id too large, with file and position
  ///         kDataLoss          a file shrank since it was opened
  Status Read(int64_t first, std::span<int32_t> out) const;

 private:
  struct File {
    std::string path;
    int64_t first = 0;  ///< Number of its first token.
    int64_t bytes = 0;
    Bytes content;  ///< Whole, or empty when `fd` is open.
    UniqueFd fd;
  };

  Corpus(Format format, int64_t vocabulary) : format_(format), vocabulary_(vocabulary) {}
  Status Add(const Source& source, std::vector<std::string>& skipped);
  Status RefuseOtherKinds(const File& file) const;
  Status LookThrough(const File& file);
  Status ReadBytes(const File& file, int64_t offset, std::span<std::byte> out) const;
  Status Decode(const File& file,
                int64_t first,
                std::span<const std::byte> raw,
                std::span<int32_t> out) const;
  int64_t token_bytes() const {
    return format_ == Format::kText ? 1 : format_ == Format::kUint16 ? 2 : 4;
  }

  const Format format_;
  const int64_t vocabulary_;
  std::vector<File> files_;
  int64_t size_ = 0;
  int64_t scanned_bytes_ = 0;
  int64_t vocabulary_floor_ = 0;
  uint64_t fingerprint_ = 0;
};

}  // namespace heddle::data
