#include "engine/runtime/device/cuda/cudnn_library.h"

#include <string_view>

#include <dlfcn.h>
#include <fmt/format.h>

namespace heddle::runtime::cuda {

void* CudnnLibrary() {
  static void* const library = std::string_view(HEDDLE_CUDNN_FRONTEND).empty()
                                   ? nullptr
                                   : dlopen("libcudnn.so.9", RTLD_NOW | RTLD_GLOBAL);
  return library;
}

std::string AttentionName() {
  return CudnnLibrary() == nullptr
             ? "flash"
             : fmt::format("cudnn {}, frontend {}", CudnnVersion(), HEDDLE_CUDNN_FRONTEND);
}

std::string CudnnVersion() {
  using Version = size_t (*)();
  const auto ask = reinterpret_cast<Version>(dlsym(RTLD_DEFAULT, "cudnnGetVersion"));
  return ask == nullptr ? "unknown" : std::to_string(ask());
}

}  // namespace heddle::runtime::cuda
