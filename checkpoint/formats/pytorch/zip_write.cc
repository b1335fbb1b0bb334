#include <algorithm>
#include <initializer_list>
#include <utility>

#include <zlib.h>

#include "base/bytes.h"
#include "base/check.h"
#include "checkpoint/formats/pytorch/zip.h"
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

constexpr uint16_t kPaddingField = 0x4246;  ///< "FB", as torch.
constexpr int64_t kAlignment = 64;
constexpr uint16_t kUtf8Flag = 1 << 11;

uint32_t In32(int64_t number) {
  return number < int64_t{kIn64} ? static_cast<uint32_t>(number) : kIn64;
}

/// Not inlined: GCC 12 then sees an overflow in an insertion into an empty buffer.
[[gnu::noinline]] void PutSignature(ByteWriter& out, uint32_t signature) {
  out.Put(signature);
}

/// What a local header and a directory entry have in common, up to the CRC.
void PutFacts(ByteWriter& out, bool is_zip64) {
  out.Put(static_cast<uint16_t>(is_zip64 ? 45 : 20));  // Version needed.
  out.Put(kUtf8Flag);
  out.Put(uint16_t{0});  // Stored.
  out.Put(uint16_t{0});
  out.Put(uint16_t{0x21});  // 1 January 1980: files of equal content are equal.
}

/// The zip64 field with those of `numbers` that need it; empty when none does.
Bytes Zip64Field(std::initializer_list<int64_t> numbers) {
  ByteWriter out;
  for (const int64_t number : numbers) {
    if (In32(number) == kIn64) {
      out.Put(number);
    }
  }
  const Bytes large = out.Take();
  if (large.empty()) {
    return {};
  }
  ByteWriter field;
  field.Put(kZip64Field);
  field.Put(static_cast<uint16_t>(large.size()));
  field.PutRaw(large);
  return field.Take();
}

}  // namespace

Result<ZipWriter> ZipWriter::Create(const std::string& path) {
  HEDDLE_ASSIGN_OR_RETURN(auto file, OutputFile::Create(path));
  return ZipWriter(std::move(file));
}

Status ZipWriter::Begin(const std::string& name, int64_t bytes) {
  HEDDLE_RETURN_IF_ERROR(PatchChecksum());
  HEDDLE_CHECK(name.size() <= 0xFFFF, "the name of a ZIP entry has {} bytes", name.size());
  entries_.push_back({.name = name, .bytes = bytes, .header = file_.bytes()});
  const Bytes zip64 = Zip64Field({bytes, bytes});
  const int64_t unpadded =
      file_.bytes() + kLocalHeaderBytes + static_cast<int64_t>(name.size() + zip64.size()) + 4;
  const int64_t padding = (kAlignment - unpadded % kAlignment) % kAlignment;
  ByteWriter out;
  PutSignature(out, kLocalHeader);
  PutFacts(out, !zip64.empty());
  out.Put(uint32_t{0});  // The CRC is known when the data has come.
  out.Put(In32(bytes));
  out.Put(In32(bytes));
  out.Put(static_cast<uint16_t>(name.size()));
  out.Put(static_cast<uint16_t>(zip64.size() + 4 + static_cast<size_t>(padding)));
  out.PutRaw(AsBytes(name));
  out.PutRaw(zip64);
  out.Put(kPaddingField);
  out.Put(static_cast<uint16_t>(padding));
  out.PutRaw(AsBytes(std::string(static_cast<size_t>(padding), 'Z')));
  return file_.Append(out.bytes());
}

Status ZipWriter::Append(std::span<const std::byte> data) {
  Entry& entry = entries_.back();
  entry.crc = static_cast<uint32_t>(
      ::crc32_z(entry.crc, reinterpret_cast<const Bytef*>(data.data()), data.size()));
  return file_.Append(data);
}

Status ZipWriter::PatchChecksum() {
  if (entries_.empty()) {
    return Status::Ok();
  }
  return file_.WriteAt(entries_.back().header + 14,
                       std::as_bytes(std::span(&entries_.back().crc, 1)));
}

Status ZipWriter::Finish() {
  HEDDLE_RETURN_IF_ERROR(PatchChecksum());
  HEDDLE_RETURN_IF_ERROR(Directory());
  return file_.Close();
}

Status ZipWriter::Directory() {
  const int64_t offset = file_.bytes();
  ByteWriter out;
  for (const Entry& entry : entries_) {
    const Bytes zip64 = Zip64Field({entry.bytes, entry.bytes, entry.header});
    PutSignature(out, kDirectoryEntry);
    out.Put(uint16_t{45});  // Version that made it.
    PutFacts(out, !zip64.empty());
    out.Put(entry.crc);
    out.Put(In32(entry.bytes));
    out.Put(In32(entry.bytes));
    out.Put(static_cast<uint16_t>(entry.name.size()));
    out.Put(static_cast<uint16_t>(zip64.size()));
    out.PutRaw(Bytes(10));  // Comment, disk and attributes.
    out.Put(In32(entry.header));
    out.PutRaw(AsBytes(entry.name));
    out.PutRaw(zip64);
  }
  const auto bytes = static_cast<int64_t>(out.bytes().size());
  const auto entries = static_cast<int64_t>(entries_.size());
  if (entries >= 0xFFFF || In32(offset) == kIn64 || In32(bytes) == kIn64) {
    PutSignature(out, kEnd64);
    out.Put(kEnd64Bytes - 12);
    out.Put(uint16_t{45});
    out.Put(uint16_t{45});
    out.Put(uint64_t{0});  // Disks.
    out.Put(entries);
    out.Put(entries);
    out.Put(bytes);
    out.Put(offset);
    PutSignature(out, kEnd64Locator);
    out.Put(uint32_t{0});
    out.Put(offset + bytes);
    out.Put(uint32_t{1});
  }
  const auto in_16 = static_cast<uint16_t>(std::min<int64_t>(entries, 0xFFFF));
  PutSignature(out, kEnd);
  out.Put(uint32_t{0});  // Disks.
  out.Put(in_16);
  out.Put(in_16);
  out.Put(In32(bytes));
  out.Put(In32(offset));
  out.Put(uint16_t{0});  // No comment.
  return file_.Append(out.bytes());
}

}  // namespace heddle::checkpoint
