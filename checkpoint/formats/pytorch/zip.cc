#include "checkpoint/formats/pytorch/zip.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "checkpoint/formats/pytorch/zip_records.h"

namespace heddle::checkpoint {

namespace {

using zip_records::kDirectoryEntry;
using zip_records::kEnd;
using zip_records::kEnd64;
using zip_records::kEnd64Bytes;
using zip_records::kEnd64Locator;
using zip_records::kIn64;
using zip_records::kLocalHeader;
using zip_records::kLocalHeaderBytes;
using zip_records::kZip64Field;

constexpr int64_t kEndBytes = 22;
constexpr int64_t kLocatorBytes = 20;
constexpr int64_t kMaxComment = 0xFFFF;
constexpr uint16_t kEncryptedFlags = 1 | 1 << 6 | 1 << 13;

/// Where the directory lies, and how many entries it has.
struct Directory {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t entries = 0;
};

struct DirectoryEntry {
  std::string name;
  uint64_t header = 0;
  uint64_t bytes = 0;
};

class Reader {
 public:
  explicit Reader(const SourceFile& file)
      : file_(file),
        file_bytes_(file.bytes()),
        path_(file.name()) {}

  Result<std::map<std::string, ZipEntry>> Read() {
    HEDDLE_ASSIGN_OR_RETURN(const Directory directory, FindDirectory());
    if (directory.bytes > uint64_t{kMaxZipDirectoryBytes} || directory.entries > kMaxZipEntries) {
      return InvalidArgumentError("{}: a ZIP directory of {} entries in {} bytes is too large",
                                  path_, directory.entries, directory.bytes);
    }
    HEDDLE_ASSIGN_OR_RETURN(const Bytes raw, At(directory.offset, directory.bytes));
    ByteReader reader(raw);
    std::vector<DirectoryEntry> entries;
    for (uint64_t i = 0; i < directory.entries; ++i) {
      auto entry = ReadEntry(reader);
      HEDDLE_RETURN_IF_ERROR(entry.status().WithContext("{}", path_));
      entries.push_back(*std::move(entry));
    }
    return Locate(entries, directory.offset);
  }

 private:
  /// `bytes`, which is within a limit, from `offset`. Errors: kDataLoss outside the file.
  Result<Bytes> At(uint64_t offset, uint64_t bytes) const {
    const auto size = static_cast<uint64_t>(file_bytes_);
    if (offset > size || bytes > size - offset) {
      return DataLossError("{}: its ZIP directory points behind the end of the file", path_);
    }
    Bytes raw(bytes);
    HEDDLE_RETURN_IF_ERROR(file_.ReadAt(static_cast<int64_t>(offset), raw));
    return raw;
  }

  /// The end record is the last thing in the file, but for a comment.
  Result<Directory> FindDirectory() const {
    const int64_t tail = std::min(file_bytes_, kEndBytes + kMaxComment);
    HEDDLE_ASSIGN_OR_RETURN(const Bytes raw, At(static_cast<uint64_t>(file_bytes_ - tail),
                                                static_cast<uint64_t>(tail)));
    for (int64_t at = tail - kEndBytes; at >= 0; --at) {
      ByteReader reader{std::span(raw).subspan(static_cast<size_t>(at))};
      const auto signature = reader.Get<uint32_t>();
      if (!signature.ok() || *signature != kEnd) {
        continue;
      }
      HEDDLE_ASSIGN_OR_RETURN(const auto disk, reader.Get<uint16_t>());
      HEDDLE_ASSIGN_OR_RETURN(const auto first_disk, reader.Get<uint16_t>());
      HEDDLE_ASSIGN_OR_RETURN(const auto entries_here, reader.Get<uint16_t>());
      HEDDLE_ASSIGN_OR_RETURN(const auto entries, reader.Get<uint16_t>());
      HEDDLE_ASSIGN_OR_RETURN(const auto bytes, reader.Get<uint32_t>());
      HEDDLE_ASSIGN_OR_RETURN(const auto offset, reader.Get<uint32_t>());
      HEDDLE_ASSIGN_OR_RETURN(const auto comment, reader.Get<uint16_t>());
      if (comment != reader.left()) {
        continue;
      }
      HEDDLE_ASSIGN_OR_RETURN(const auto large, FindDirectory64(file_bytes_ - tail + at));
      if (large) {
        return *large;
      }
      if (disk != 0 || first_disk != 0 || entries_here != entries) {
        return SeveralDisks();
      }
      return Directory{.offset = offset, .bytes = bytes, .entries = entries};
    }
    return DataLossError("{}: the end of the ZIP archive is missing: the file is cut short", path_);
  }

  /// The zip64 directory whose locator ends at `end`; nothing when there is none.
  Result<std::optional<Directory>> FindDirectory64(int64_t end) const {
    std::optional<Directory> none;
    if (end < kLocatorBytes) {
      return none;
    }
    HEDDLE_ASSIGN_OR_RETURN(const Bytes locator, At(static_cast<uint64_t>(end - kLocatorBytes),
                                                    static_cast<uint64_t>(kLocatorBytes)));
    ByteReader reader(locator);
    HEDDLE_ASSIGN_OR_RETURN(const auto signature, reader.Get<uint32_t>());
    if (signature != kEnd64Locator) {
      return none;
    }
    HEDDLE_ASSIGN_OR_RETURN(const auto disk, reader.Get<uint32_t>());
    HEDDLE_ASSIGN_OR_RETURN(const auto at, reader.Get<uint64_t>());
    HEDDLE_ASSIGN_OR_RETURN(const Bytes raw, At(at, uint64_t{kEnd64Bytes}));
    ByteReader record(raw);
    HEDDLE_ASSIGN_OR_RETURN(const auto record_signature, record.Get<uint32_t>());
    if (record_signature != kEnd64) {
      return DataLossError("{}: the zip64 end record is damaged", path_);
    }
    HEDDLE_RETURN_IF_ERROR(record.GetRaw(12).status());  // Size and versions.
    HEDDLE_ASSIGN_OR_RETURN(const auto this_disk, record.Get<uint32_t>());
    HEDDLE_ASSIGN_OR_RETURN(const auto first_disk, record.Get<uint32_t>());
    HEDDLE_ASSIGN_OR_RETURN(const auto entries_here, record.Get<uint64_t>());
    Directory directory;
    HEDDLE_ASSIGN_OR_RETURN(directory.entries, record.Get<uint64_t>());
    HEDDLE_ASSIGN_OR_RETURN(directory.bytes, record.Get<uint64_t>());
    HEDDLE_ASSIGN_OR_RETURN(directory.offset, record.Get<uint64_t>());
    if (disk != 0 || this_disk != 0 || first_disk != 0 || entries_here != directory.entries) {
      return SeveralDisks();
    }
    return std::optional(directory);
  }

  Status SeveralDisks() const {
    return InvalidArgumentError("{}: a ZIP archive on several disks is not read", path_);
  }

  static Result<DirectoryEntry> ReadEntry(ByteReader& reader) {
    HEDDLE_ASSIGN_OR_RETURN(const auto signature, reader.Get<uint32_t>());
    if (signature != kDirectoryEntry) {
      return DataLossError("the ZIP directory is damaged");
    }
    HEDDLE_RETURN_IF_ERROR(reader.GetRaw(4).status());  // Versions.
    HEDDLE_ASSIGN_OR_RETURN(const auto flags, reader.Get<uint16_t>());
    HEDDLE_ASSIGN_OR_RETURN(const auto method, reader.Get<uint16_t>());
    HEDDLE_RETURN_IF_ERROR(reader.GetRaw(8).status());  // Time, date, CRC.
    HEDDLE_ASSIGN_OR_RETURN(const auto stored_bytes, reader.Get<uint32_t>());
    HEDDLE_ASSIGN_OR_RETURN(const auto bytes, reader.Get<uint32_t>());
    HEDDLE_ASSIGN_OR_RETURN(const auto name_bytes, reader.Get<uint16_t>());
    HEDDLE_ASSIGN_OR_RETURN(const auto extra_bytes, reader.Get<uint16_t>());
    HEDDLE_ASSIGN_OR_RETURN(const auto comment_bytes, reader.Get<uint16_t>());
    HEDDLE_ASSIGN_OR_RETURN(const auto disk, reader.Get<uint16_t>());
    HEDDLE_RETURN_IF_ERROR(reader.GetRaw(6).status());  // Attributes.
    HEDDLE_ASSIGN_OR_RETURN(const auto header, reader.Get<uint32_t>());
    HEDDLE_ASSIGN_OR_RETURN(const auto name, reader.GetRaw(name_bytes));
    HEDDLE_ASSIGN_OR_RETURN(const auto extra, reader.GetRaw(extra_bytes));
    HEDDLE_RETURN_IF_ERROR(reader.GetRaw(comment_bytes).status());
    DirectoryEntry entry{.name = {reinterpret_cast<const char*>(name.data()), name.size()},
                         .header = header,
                         .bytes = bytes};
    uint64_t stored = stored_bytes;
    HEDDLE_RETURN_IF_ERROR(ReadZip64(extra, entry, stored));
    if ((flags & kEncryptedFlags) != 0) {
      return InvalidArgumentError("entry '{}' is encrypted", entry.name);
    }
    if (method != 0) {
      return InvalidArgumentError(
          "entry '{}' is compressed (method {}): torch.save stores entries as they are; unpack the "
          "archive and pack it with 'zip -0 -r'",
          entry.name, method);
    }
    if (disk != 0 && disk != 0xFFFF) {
      return InvalidArgumentError("entry '{}' is on another disk", entry.name);
    }
    if (stored != entry.bytes) {
      return DataLossError("entry '{}' is stored, but in {} bytes for {}", entry.name, stored,
                           entry.bytes);
    }
    return entry;
  }

  /// Numbers that do not fit into 32 bits, in their fixed order.
  static Status ReadZip64(std::span<const std::byte> extra,
                          DirectoryEntry& entry,
                          uint64_t& stored) {
    ByteReader fields(extra);
    while (fields.left() >= 4) {
      HEDDLE_ASSIGN_OR_RETURN(const auto id, fields.Get<uint16_t>());
      HEDDLE_ASSIGN_OR_RETURN(const auto bytes, fields.Get<uint16_t>());
      HEDDLE_ASSIGN_OR_RETURN(const auto raw, fields.GetRaw(bytes));
      if (id != kZip64Field) {
        continue;
      }
      ByteReader numbers(raw);
      for (uint64_t* number : {&entry.bytes, &stored, &entry.header}) {
        if (*number == kIn64) {
          HEDDLE_ASSIGN_OR_RETURN(*number, numbers.Get<uint64_t>());
        }
      }
      return Status::Ok();
    }
    return Status::Ok();
  }

  /// Finds the data behind every local header; all of them lie before the directory.
  Result<std::map<std::string, ZipEntry>> Locate(std::vector<DirectoryEntry>& entries,
                                                 uint64_t directory) const {
    std::sort(entries.begin(), entries.end(),
              [](const auto& left, const auto& right) { return left.header < right.header; });
    std::map<std::string, ZipEntry> located;
    uint64_t end = 0;
    for (DirectoryEntry& entry : entries) {
      if (entry.header < end) {
        return DataLossError("{}: entry '{}' overlaps another", path_, entry.name);
      }
      HEDDLE_ASSIGN_OR_RETURN(const uint64_t data, DataOffset(entry));
      if (data > directory || entry.bytes > directory - data) {
        return DataLossError("{}: entry '{}' reaches into the ZIP directory", path_, entry.name);
      }
      end = data + entry.bytes;
      const ZipEntry place{.offset = static_cast<int64_t>(data),
                           .bytes = static_cast<int64_t>(entry.bytes)};
      if (const auto [at, is_new] = located.emplace(std::move(entry.name), place); !is_new) {
        return InvalidArgumentError("{}: two entries are called '{}'", path_, at->first);
      }
    }
    return located;
  }

  Result<uint64_t> DataOffset(const DirectoryEntry& entry) const {
    HEDDLE_ASSIGN_OR_RETURN(const Bytes raw, At(entry.header, uint64_t{kLocalHeaderBytes}));
    ByteReader reader(raw);
    HEDDLE_ASSIGN_OR_RETURN(const auto signature, reader.Get<uint32_t>());
    HEDDLE_RETURN_IF_ERROR(reader.GetRaw(22).status());  // As in the directory.
    HEDDLE_ASSIGN_OR_RETURN(const auto name_bytes, reader.Get<uint16_t>());
    HEDDLE_ASSIGN_OR_RETURN(const auto extra_bytes, reader.Get<uint16_t>());
    if (signature != kLocalHeader || name_bytes != entry.name.size()) {
      return DataLossError("{}: entry '{}' is not where the ZIP directory says", path_, entry.name);
    }
    return entry.header + uint64_t{kLocalHeaderBytes} + name_bytes + extra_bytes;
  }

  const SourceFile& file_;
  const int64_t file_bytes_;
  const std::string& path_;
};

}  // namespace

Result<std::map<std::string, ZipEntry>> ReadZipDirectory(const SourceFile& file) {
  return Reader(file).Read();
}

}  // namespace heddle::checkpoint
