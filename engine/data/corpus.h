/// \file
/// A sequence of tokens from files.
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
  kText,    ///< Bytes are tokens; the vocabulary is 256.
  kUint16,  ///< Token ids of two bytes, little-endian, without a header, as nanoGPT writes them.
  kUint32,  ///< Token ids of four bytes, little-endian, without a header.
};

/// The tokens of a list of files. Small files are held in memory, large ones are read on demand;
/// files are not mapped, because a mapped file that shrinks kills its reader.
///
/// Text files are joined by a newline, token files without a separator. Files of up to kScanBytes
/// in sum are scanned when the corpus is opened: text for NUL bytes, tokens for ids that are too
/// large. Of further files only the first MiB and the last KiB are scanned; ids are checked again
/// when they are read. Thread: any, once open.
class Corpus {
 public:
  static constexpr int64_t kScanBytes = int64_t{1} << 30;
  static constexpr int64_t kInMemoryBytes = int64_t{16} << 20;

  /// A file of the corpus.
  struct Source {
    std::string path;
    bool named = true;  ///< The user named the file, so that it is refused instead of skipped.
  };

  /// Opens the files. `vocabulary`: all ids must be smaller; 0: no limit but that of int32.
  /// Errors: kInvalidArgument   NUL byte in a named text file, size no whole number of tokens, id
  ///                            too large (with file and position), not a regular file, named file
  ///                            empty, no token at all, token file of another kind or of wider ids, a
  ///                            pointer of Git LFS
  ///         the system's       a file cannot be read
  static Result<std::unique_ptr<Corpus>> Open(Format format,
                                              const std::vector<Source>& sources,
                                              int64_t vocabulary);

  /// Number of tokens.
  int64_t size() const { return size_; }
  /// The largest id seen so far plus one; 256 for text.
  int64_t vocabulary_floor() const { return vocabulary_floor_; }
  /// A hash of every file's size and of every byte that was scanned; independent of names.
  uint64_t fingerprint() const { return fingerprint_; }
  /// The paths of the files in use, in order.
  std::vector<std::string> files() const;

  /// Reads tokens [first, first + out.size()), which must exist.
  /// Errors: kInvalidArgument   id too large, with file and position
  ///         kDataLoss          a file shrank since it was opened
  Status Read(int64_t first, std::span<int32_t> out) const;

 private:
  struct File {
    std::string path;
    int64_t first = 0;  ///< Number of the file's first token.
    int64_t bytes = 0;
    Bytes content;  ///< The whole content; empty if `fd` is open.
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
