#include "benchmarks/checkpoint/state.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/bytes.h"
#include "base/random.h"
#include "base/system/file.h"
#include "checkpoint/read/reader.h"

namespace heddle::checkpoint {

namespace {

constexpr int64_t kBytesAParameter = 2 + 3 * 4;
constexpr int64_t kAlignment = 64;
constexpr int64_t kStateLimit = int64_t{64} << 30;

/// Copies of a tensor with rows of `row` elements, one below the other. In all but the first, a
/// row's elements come in another order and each is multiplied by a factor within 1/16 of 1.
Bytes Copies(const Bytes& one, int64_t copies, size_t row, uint64_t key) {
  Random random(key);
  std::vector<float> many(one.size() / sizeof(float) * static_cast<size_t>(copies));
  for (size_t at = 0; at < many.size(); at += one.size() / sizeof(float)) {
    std::memcpy(many.data() + at, one.data(), one.size());
  }
  for (size_t begin = one.size() / sizeof(float); begin < many.size(); begin += row) {
    for (size_t i = 0; i < row; ++i) {
      float& value = many[begin + i];
      std::swap(value, many[begin + i + random.Below(row - i)]);
      value *= static_cast<float>(1 + (random.Uniform() - 0.5) / 8);
    }
  }
  const auto bytes = std::as_bytes(std::span(many));
  return {bytes.begin(), bytes.end()};
}

/// Round to nearest, ties to even; written here and not taken from the library, which is what is
/// measured.
Bytes RoundedToBf16(const Bytes& master) {
  Bytes weights(master.size() / 2);
  for (size_t i = 0; i < weights.size() / 2; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, master.data() + 4 * i, sizeof bits);
    const auto rounded = static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
    std::memcpy(weights.data() + 2 * i, &rounded, sizeof rounded);
  }
  return weights;
}

class StateWriter {
 public:
  explicit StateWriter(const std::string& folder)
      : elements_(folder + "/state.bin", std::ios::binary),
        index_(folder + "/state.txt") {}

  void Put(const TensorInfo& info, const Bytes& bytes) {
    index_ << fmt::format("{} {} {} {} {}\n", info.role, DTypeName(info.dtype),
                          fmt::join(info.shape, ","), offset_, info.name);
    const size_t padding = (kAlignment - bytes.size() % kAlignment) % kAlignment;
    elements_.write(reinterpret_cast<const char*>(bytes.data()),
                    static_cast<std::streamsize>(bytes.size()));
    elements_ << std::string(padding, '\0');
    offset_ += static_cast<int64_t>(bytes.size() + padding);
  }

  Status Finish() {
    elements_.close();
    index_.close();
    return elements_ && index_ ? Status::Ok() : UnavailableError("the state cannot be written");
  }

 private:
  std::ofstream elements_;
  std::ofstream index_;
  int64_t offset_ = 0;
};

std::optional<StateTensor> ParseLine(const std::string& line) {
  std::istringstream fields(line);
  StateTensor tensor;
  std::string dtype;
  std::string shape;
  fields >> tensor.info.role >> dtype >> shape >> tensor.offset >> tensor.info.name;
  const auto parsed = ParseDType(dtype);
  if (!fields || !parsed.ok()) {
    return std::nullopt;
  }
  tensor.info.dtype = *parsed;
  std::istringstream extents(shape);
  for (std::string extent; std::getline(extents, extent, ',');) {
    tensor.info.shape.push_back(std::strtoll(extent.c_str(), nullptr, 10));
  }
  return tensor;
}

}  // namespace

Status MakeState(const std::string& checkpoint, int64_t bytes, const std::string& folder) {
  HEDDLE_ASSIGN_OR_RETURN(const auto reader, Reader::Open(checkpoint));
  int64_t parameters = 0;
  for (const TensorRecord& tensor : reader->manifest().tensors) {
    parameters += tensor.info.role == "master" ? ElementCount(tensor.info.shape) : 0;
  }
  if (parameters == 0) {
    return InvalidArgumentError("{}: no tensor of the role master", checkpoint);
  }
  const int64_t whole = parameters * kBytesAParameter;
  const int64_t copies = std::max<int64_t>(1, (bytes + whole - 1) / whole);
  StateWriter state(folder);
  std::vector<std::pair<TensorInfo, Bytes>> weights;
  for (const TensorRecord& tensor : reader->manifest().tensors) {
    TensorInfo info = tensor.info;
    if (info.role != "master" && info.role != "exp_avg" && info.role != "exp_avg_sq") {
      continue;
    }
    if (info.dtype != DType::kF32 || ElementCount(info.shape) == 0) {
      return InvalidArgumentError("{}: '{}' ({}) is not of fp32 elements", checkpoint, info.name,
                                  info.role);
    }
    Bytes held(static_cast<size_t>(ElementCount(info.shape) * SizeOf(info.dtype)));
    HEDDLE_RETURN_IF_ERROR(reader->Read(info.key(), WholeBox(info.shape), held));
    if (info.shape.empty()) {
      info.shape = {1};
    }
    const Bytes many = Copies(held, copies, static_cast<size_t>(info.shape.back()),
                              StreamKey(1, info.role + "/" + info.name));
    info.shape[0] *= copies;
    state.Put(info, many);
    if (info.role == "master") {
      info.role = kWeightRole;
      info.dtype = DType::kBF16;
      weights.emplace_back(info, RoundedToBf16(many));
    }
  }
  for (const auto& [info, rounded] : weights) {
    state.Put(info, rounded);
  }
  return state.Finish();
}

Result<TrainingState> LoadState(const std::string& folder) {
  TrainingState state;
  HEDDLE_ASSIGN_OR_RETURN(state.elements, ReadFile(folder + "/state.bin", kStateLimit));
  HEDDLE_ASSIGN_OR_RETURN(const std::string index, ReadFile(folder + "/state.txt", kStateLimit));
  std::istringstream lines(index);
  for (std::string line; std::getline(lines, line);) {
    auto tensor = ParseLine(line);
    if (!tensor || tensor->offset < 0 ||
        tensor->offset + tensor->bytes() > static_cast<int64_t>(state.elements.size())) {
      return DataLossError("{}/state.txt: '{}' is no tensor of the state", folder, line);
    }
    state.tensors.push_back(*std::move(tensor));
  }
  return state;
}

}  // namespace heddle::checkpoint
