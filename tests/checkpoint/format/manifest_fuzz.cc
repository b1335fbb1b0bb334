/// \file
/// The manifest's parser behind its checksum: whatever it accepts must survive its own text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "checkpoint/format/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using heddle::checkpoint::DecodePart;
  using heddle::checkpoint::EncodeManifest;
  using heddle::checkpoint::ParseManifest;
  using heddle::checkpoint::ParseManifestBody;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  ParseManifest(text).status().IgnoreError("most inputs are refused");
  DecodePart(text).status().IgnoreError("most inputs are refused");
  const auto manifest = ParseManifestBody(text);
  if (manifest.ok()) {
    const auto again = ParseManifest(EncodeManifest(*manifest));
    if (!again.ok() || again->tensors != manifest->tensors || again->files != manifest->files) {
      std::abort();
    }
  }
  return 0;
}
