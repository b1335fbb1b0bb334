#include "checkpoint/formats/describe.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint/format/layout.h"

namespace heddle::checkpoint {

namespace {

std::string TypeName(const FileTensor& tensor) {
  return tensor.dtype ? std::string(DTypeName(*tensor.dtype)) : tensor.type;
}

int64_t TotalBytes(const TensorSource& source) {
  int64_t bytes = 0;
  for (const FileTensor& tensor : source.tensors()) {
    bytes += tensor.bytes;
  }
  return bytes;
}

}  // namespace

std::string DescribeText(const TensorSource& source) {
  size_t widest = 0;
  for (const FileTensor& tensor : source.tensors()) {
    widest = std::max(widest, std::min(tensor.name.size(), kWidestName));
  }
  std::string text = fmt::format("{}: {} tensors, {} bytes\n", source.format(),
                                 source.tensors().size(), TotalBytes(source));
  for (const FileTensor& tensor : source.tensors()) {
    text += fmt::format("  {:<{}}  {:<8}  {}\n", tensor.name, widest, TypeName(tensor),
                        ToString(tensor.shape));
  }
  return text;
}

std::string DescribeJson(const TensorSource& source) {
  using Json = nlohmann::ordered_json;
  Json tensors = Json::array();
  for (const FileTensor& tensor : source.tensors()) {
    tensors.push_back({{"name", tensor.name},
                       {"dtype", TypeName(tensor)},
                       {"shape", tensor.shape},
                       {"bytes", tensor.bytes},
                       {"stored_bytes", tensor.stored_bytes}});
  }
  const Json json = {{"format", source.format()},
                     {"step", source.step()},
                     {"bytes", TotalBytes(source)},
                     {"tensors", std::move(tensors)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace heddle::checkpoint
