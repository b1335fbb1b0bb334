#include "tests/engine_runtime/device/check.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

#include <fmt/format.h>
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

// At once: what is still in a buffer is lost when the script ends a program that hangs.
void Print(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
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
  auto device = OpenDevice(CheckedName(), {});
  if (!device.ok()) {
    Print("cannot: " + device.status().ToString());
  }
  return device;
}

std::unique_ptr<Device> DeviceOfRank(int /*rank*/) {
  auto device = OpenChecked();
  return device.ok() ? *std::move(device) : nullptr;
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

Result<std::unique_ptr<SharedSlab>> SharedSlab::Create(size_t bytes) {
  auto slab = std::make_unique<SharedSlab>();
  HEDDLE_ASSIGN_OR_RETURN(
      slab->endpoint_,
      comm::Endpoint::Create(
          {.config = {.worker = "a", .job = "job", .secret = "s"}, .metrics = &slab->registry_}));
  HEDDLE_ASSIGN_OR_RETURN(slab->buffer_, slab->endpoint_->AllocateShared(bytes));
  return slab;
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void Say(const std::string& text) {
  Print("says: " + text);
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
