/// \file
/// The index of a sharded model: whatever is accepted names files beside it, never a path.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/system/unique_fd.h"
#include "checkpoint/formats/shards.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const heddle::UniqueFd fd(::memfd_create("index", MFD_CLOEXEC));
  if (::write(fd.get(), data, size) != static_cast<ssize_t>(size)) {
    return 0;
  }
  const auto files = heddle::checkpoint::ReadShardIndex(fmt::format("/proc/self/fd/{}", fd.get()));
  if (!files.ok()) {
    return 0;
  }
  for (const auto& [tensor, file] : *files) {
    if (file.empty() || file == "." || file == ".." || file.find('/') != std::string::npos ||
        file.find('\0') != std::string::npos) {
      std::abort();
    }
  }
  if (files->empty()) {
    std::abort();
  }
  return 0;
}
