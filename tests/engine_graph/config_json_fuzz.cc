/// \file
/// Hugging Face's config.json: whatever is accepted is a model that can be built and survives its
/// own text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "engine/graph/models/model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using heddle::graph::ModelConfigJson;
  using heddle::graph::ParseModelConfig;
  const auto config = ParseModelConfig(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!config.ok()) {
    return 0;
  }
  const std::string text = ModelConfigJson(*config);
  const auto again = ParseModelConfig(text);
  if (!ValidateModel(*config).ok() || !again.ok() || ModelConfigJson(*again) != text) {
    std::abort();
  }
  return 0;
}
