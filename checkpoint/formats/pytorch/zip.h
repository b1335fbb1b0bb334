/// \file
/// ZIP archives as torch.save writes them: every entry is stored uncompressed, so that its bytes
/// can be read from the file by offset. (PKWARE's APPNOTE.TXT 6.3.10; zip64 included.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/files/file_access.h"
#include "checkpoint/formats/staged_output.h"

namespace heddle::checkpoint {

inline constexpr int64_t kMaxZipDirectoryBytes = int64_t{16} << 20;
inline constexpr size_t kMaxZipEntries = 200'000;

/// The position of an entry's bytes in the file.
struct ZipEntry {
  int64_t offset = 0;
  int64_t bytes = 0;

  friend bool operator==(const ZipEntry&, const ZipEntry&) = default;
};

/// The entries of the archive `file`, by name. Their ranges lie in the file and do not overlap.
/// CRCs are not compared, because PyTorch may write files without them.
/// Errors, which name the file: kDataLoss (damage); kInvalidArgument (a valid archive that is not
/// supported: a compressed or encrypted entry, two entries of one name, an archive on several
/// disks, or a limit is exceeded).
Result<std::map<std::string, ZipEntry>> ReadZipDirectory(const SourceFile& file);

/// Writes uncompressed entries one after the other, with their data aligned to 64 bytes, as
/// torch.save does. Thread: one caller at a time. Errors: those of writing.
class ZipWriter {
 public:
  /// Creates `path`, which must not exist.
  static Result<ZipWriter> Create(const std::string& path);

  /// Begins an entry of `bytes` bytes; the previous entry must be complete.
  Status Begin(const std::string& name, int64_t bytes);
  /// Appends bytes to the entry, as many in all as were passed to Begin.
  Status Append(std::span<const std::byte> data);
  /// Writes the directory and closes the file; the last entry must be complete.
  Status Finish();

 private:
  struct Entry {
    std::string name;
    int64_t bytes = 0;
    int64_t header = 0;  ///< Offset of the entry's local header.
    uint32_t crc = 0;
  };

  explicit ZipWriter(OutputFile file) : file_(std::move(file)) {}
  Status Directory();
  Status PatchChecksum();

  OutputFile file_;
  std::vector<Entry> entries_;
};

}  // namespace heddle::checkpoint
