/// \file
/// A model in memory as a TensorSource: elements that say where they are.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/bytes.h"
#include "checkpoint/formats/format.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {

class MemoryModel : public TensorSource {
 public:
  explicit MemoryModel(std::string config) : config_(std::move(config)) {}

  /// Element i of the tensor is `first` + i.
  void Add(const std::string& name, const Shape& shape, float first, const std::string& role = "") {
    Bytes bytes(static_cast<size_t>(ElementCount(shape)) * sizeof(float));
    for (int64_t i = 0; i < ElementCount(shape); ++i) {
      const float value = first + static_cast<float>(i);
      std::memcpy(bytes.data() + i * 4, &value, sizeof(value));
    }
    AddBytes(name, DType::kF32, shape, std::move(bytes), role);
  }
  void AddBytes(const std::string& name,
                DType dtype,
                const Shape& shape,
                Bytes bytes,
                const std::string& role = "") {
    FileTensor tensor{.name = name,
                      .role = role,
                      .type = std::string(DTypeName(dtype)),
                      .dtype = dtype,
                      .shape = shape,
                      .bytes = static_cast<int64_t>(bytes.size()),
                      .stored_bytes = static_cast<int64_t>(bytes.size())};
    tensors_.push_back(std::move(tensor));
    bytes_.push_back(std::move(bytes));
  }
  FileTensor& tensor(size_t i) { return tensors_[i]; }
  FileTensor& last() { return tensors_.back(); }
  Bytes& last_bytes() { return bytes_.back(); }
  void Remove(const std::string& name) {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (tensors_[i].name == name) {
        tensors_.erase(tensors_.begin() + static_cast<long>(i));
        bytes_.erase(bytes_.begin() + static_cast<long>(i));
        return;
      }
    }
    ADD_FAILURE() << "no tensor " << name;
  }

  std::string format() const override { return "memory"; }
  const std::vector<FileTensor>& tensors() const override { return tensors_; }
  std::string config() const override { return config_; }
  int64_t step() const override { return 17; }
  Status Read(size_t tensor, const Box& box, std::span<std::byte> out) const override {
    const FileTensor& info = tensors_[tensor];
    const Bytes part =
        Extract(bytes_[tensor], {info.name, info.role, *info.dtype, info.shape}, box);
    if (part.size() != out.size()) {
      return InternalError("{}: {} bytes for a box of {}", info.name, out.size(), part.size());
    }
    std::memcpy(out.data(), part.data(), part.size());
    return Status::Ok();
  }

 private:
  std::string config_;
  std::vector<FileTensor> tensors_;
  std::vector<Bytes> bytes_;
};

}  // namespace heddle::checkpoint
