/// \file
/// ZIP archives as torch.save makes them: every entry is stored as it is, so that its bytes can be
/// read from the file by offset. (PKWARE's APPNOTE.TXT 6.3.10; zip64 included.)
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

inline constexpr int64_t kMaximumZipDirectoryBytes = int64_t{16} << 20;
inline constexpr size_t kMaximumZipEntries = 200'000;

/// Where an entry's bytes lie in the file.
struct ZipEntry {
  int64_t offset = 0;
  int64_t bytes = 0;

  friend bool operator==(const ZipEntry&, const ZipEntry&) = default;
};

/// The entries of the archive `file`, by name. Every range lies in the file and none overlaps
/// another. CRCs are not compared: PyTorch may write files without them.
/// Errors, which name the file: kDataLoss for damage; kInvalidArgument for what is sound but not
/// read: a compressed or encrypted entry, two of one name, an archive on several disks, more than
/// the limits above.
Result<std::map<std::string, ZipEntry>> ReadZipDirectory(const SourceFile& file);

/// Writes stored entries one after the other; their data is aligned to 64 bytes, as in torch's own.
/// Thread: one caller at a time. Errors: those of writing.
class ZipWriter {
 public:
  /// Creates `path`, which does not exist.
  static Result<ZipWriter> Create(const std::string& path);

  /// Begins an entry of `bytes` bytes; the one before is complete.
  Status Begin(const std::string& name, int64_t bytes);
  /// The next bytes of the entry; all of them together are what Begin announced.
  Status Append(std::span<const std::byte> data);
  /// The last entry is complete: writes the directory and closes the file.
  Status Finish();

 private:
  struct Entry {
    std::string name;
    int64_t bytes = 0;
    int64_t header = 0;  ///< Offset of its local header.
    uint32_t crc = 0;
  };

  explicit ZipWriter(OutputFile file) : file_(std::move(file)) {}
  Status Directory();
  Status PatchChecksum();

  OutputFile file_;
  std::vector<Entry> entries_;
};

}  // namespace heddle::checkpoint
