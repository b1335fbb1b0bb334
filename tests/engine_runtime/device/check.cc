#include "tests/engine_runtime/device/check.h"

#include <cstdlib>
#include <fstream>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/device/fake_device.h"
#ifdef HEDDLE_WITH_CUDA
#include "engine/runtime/kernels/cuda/cudnn_attention.h"
#include "tests/support/device/cuda/cuda_queue.h"
#endif

namespace heddle::runtime::testing {
namespace {

std::string Variable(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return value == nullptr ? otherwise : value;
}

}  // namespace

std::string CheckedName() {
  return Variable("HEDDLE_CHECK_DEVICE", "cpu");
}

bool ChecksCard() {
  return CheckedName().starts_with("cuda");
}

Result<std::unique_ptr<Device>> OpenChecked() {
  if (CheckedName() == "fake") {
    return std::unique_ptr<Device>(
        std::make_unique<FakeDevice>(FakeOptions{.memory_bytes = size_t{1} << 30}));
  }
  return OpenDevice(CheckedName(), {});
}

InQueue CheckedQueue() {
#ifdef HEDDLE_WITH_CUDA
  if (ChecksCard()) {
    return &CallInCudaQueue;
  }
#endif
  return {};
}

int64_t Size(int64_t small, int64_t large) {
  return ChecksCard() ? large : small;
}

bool CudnnTakes([[maybe_unused]] Device& device, [[maybe_unused]] int64_t head_dim) {
  bool taken = false;
#ifdef HEDDLE_WITH_CUDA
  const cuda::AttentionShape shape{
      .batch = 2, .length = 512, .heads = 4, .kv_heads = 2, .head_dim = head_dim};
  std::vector<at::Tensor> in;
  for (const int64_t heads : {shape.heads, shape.kv_heads, shape.kv_heads}) {
    in.push_back(device.Empty(
        {.dtype = DType::kBF16, .shape = {shape.batch, shape.length, heads * head_dim}}));
  }
  device.Update([&] { taken = cuda::CudnnAttention(shape, in).has_value(); });
  const Status drained = device.Drain(After(kPatience));
  EXPECT_TRUE(drained.ok()) << drained.ToString();
#endif
  return taken;
}

at::Tensor OnDevice(Device& device, const at::Tensor& host) {
  const Copied copied = device.Upload(host);
  device.Await(copied.mark);
  return copied.tensor;
}

at::Tensor OnHost(Device& device, const at::Tensor& value) {
  const Copied copied = device.Download(value);
  EXPECT_TRUE(copied.mark.Wait(After(kPatience)).ok());
  return copied.tensor.clone();
}

void Note(const std::string& what, nlohmann::json figures) {
  const std::string path = Variable("HEDDLE_CHECK_OUT", "");
  if (!path.empty()) {
    figures["what"] = what;
    figures["device"] = CheckedName();
    std::ofstream(path, std::ios::app) << figures.dump() << std::endl;
  }
}

}  // namespace heddle::runtime::testing
