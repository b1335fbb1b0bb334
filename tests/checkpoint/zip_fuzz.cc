/// \file
/// The ZIP directory: whatever is accepted lies in the file, without overlaps.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include "base/unique_fd.h"
#include "checkpoint/formats/zip.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const heddle::UniqueFd fd(::memfd_create("archive", MFD_CLOEXEC));
  if (::write(fd.get(), data, size) != static_cast<ssize_t>(size)) {
    return 0;
  }
  const auto bytes = static_cast<int64_t>(size);
  const auto entries = heddle::checkpoint::ReadZipDirectory(fd.get(), bytes, "archive");
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
