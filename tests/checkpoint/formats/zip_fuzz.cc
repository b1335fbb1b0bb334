/// \file
/// The ZIP directory: whatever is accepted lies in the file, without overlaps.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <set>
#include <span>
#include <utility>

#include "checkpoint/files/file_access.h"
#include "checkpoint/formats/pytorch/zip.h"

namespace {

/// Reads behind its end abort: what a directory says is compared with the size first.
class Archive : public heddle::checkpoint::SourceFile {
 public:
  explicit Archive(std::span<const uint8_t> data)
      : SourceFile("archive", static_cast<int64_t>(data.size())),
        data_(data) {}

  heddle::Status ReadAt(int64_t offset, std::span<std::byte> out) const override {
    if (offset < 0 || offset > bytes() || static_cast<int64_t>(out.size()) > bytes() - offset) {
      std::abort();
    }
    if (!out.empty()) {
      std::memcpy(out.data(), data_.data() + offset, out.size());
    }
    return heddle::Status::Ok();
  }

 private:
  std::span<const uint8_t> data_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = static_cast<int64_t>(size);
  const auto entries = heddle::checkpoint::ReadZipDirectory(Archive({data, size}));
  if (!entries.ok()) {
    return 0;
  }
  std::set<std::pair<int64_t, int64_t>> ranges;
  for (const auto& [name, entry] : *entries) {
    ranges.emplace(entry.offset, entry.bytes);
  }
  int64_t end = 0;
  for (const auto& [offset, length] : ranges) {
    if (offset < end || length < 0 || length > bytes - offset) {
      std::abort();
    }
    end = offset + length;
  }
  return 0;
}
