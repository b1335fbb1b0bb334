/// \file
/// The part of the check of a device about the optimizer: AdamW and the sums of squares are those of
/// fp64, and AdamW has the processor's bits, because a worker on a card and one on a processor may
/// hold the same parameters.
#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/runtime/adamw.h"
#include "engine/runtime/device/tensor.h"
#include "tests/engine_runtime/device/check.h"

namespace heddle::runtime::testing {
namespace {

// Values in host memory, of `count` elements between -1 and 1.
at::Tensor Numbers(int64_t count, uint64_t seed) {
  Random random(seed);
  at::Tensor values = at::empty({count}, at::TensorOptions(at::kFloat));
  for (int64_t i = 0; i < count; ++i) {
    values.data_ptr<float>()[i] = static_cast<float>(2 * random.Uniform() - 1);
  }
  return values;
}

// A master, its moments and a gradient.
std::vector<at::Tensor> State(int64_t count) {
  return {Numbers(count, 1), Numbers(count, 2) * 0.1, Numbers(count, 3).square() * 0.01,
          Numbers(count, 4)};
}

TEST(DeviceCheck, UpdatesAndSquaresAreThoseOfFp64) {
  const c10::InferenceMode inference;
  auto device = OpenChecked();
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  const AdamWStep step{.learning_rate = 1e-2, .clip_factor = 0.5, .step = 3, .weight_decay = 0.1};
  for (const int64_t count : {int64_t{1}, int64_t{4095}, int64_t{4096}, int64_t{12289}}) {
    std::vector<at::Tensor> there;
    std::vector<at::Tensor> exact;
    for (const at::Tensor& tensor : State(count)) {
      there.push_back(OnDevice(**device, tensor.clone()));
      exact.push_back(tensor.to(at::kDouble));
    }
    at::Tensor copy = (*device)->Empty({.dtype = DType::kBF16, .shape = {count}});
    at::Tensor sums = (*device)->Empty({.dtype = DType::kF64, .shape = {SquareBlocks(count)}});
    (*device)->Update([=]() mutable {
      SumSquaresOfBlocks(there[3], sums);
      AdamWUpdate(there[0], there[1], there[2], there[3], copy, step);
    });
    const at::Tensor g = exact[3] * 0.5;
    const at::Tensor m = exact[1] * 0.9 + g * 0.1;
    const at::Tensor v = exact[2] * 0.95 + g * g * 0.05;
    const at::Tensor p = exact[0] * (1 - 1e-3) - 1e-2 * (m / (1 - std::pow(0.9, 3))) /
                                                     ((v / (1 - std::pow(0.95, 3))).sqrt() + 1e-8);
    EXPECT_TRUE(at::allclose(OnHost(**device, there[0]).to(at::kDouble), p, 1e-5, 1e-6)) << count;
    EXPECT_TRUE(at::allclose(OnHost(**device, there[1]).to(at::kDouble), m, 1e-5, 1e-7)) << count;
    EXPECT_TRUE(at::allclose(OnHost(**device, there[2]).to(at::kDouble), v, 1e-5, 1e-8)) << count;
    EXPECT_TRUE(at::equal(OnHost(**device, copy), OnHost(**device, there[0]).to(at::kBFloat16)))
        << count;
    EXPECT_NEAR(OnHost(**device, sums).sum().item<double>(), exact[3].square().sum().item<double>(),
                1e-10 * static_cast<double>(count));
  }
}

// The number of elements of `there` whose bits are not those of `here`.
int64_t OtherBits(const at::Tensor& there, const at::Tensor& here) {
  const std::span<const std::byte> one = BytesOf(there);
  const std::span<const std::byte> other = BytesOf(here);
  EXPECT_EQ(one.size(), other.size());
  const auto element = static_cast<size_t>(here.element_size());
  int64_t others = 0;
  for (size_t i = 0; i < one.size(); i += element) {
    others += std::memcmp(one.data() + i, other.data() + i, element) == 0 ? 0 : 1;
  }
  return others;
}

enum class CopyOf {
  kBF16,
  kF32,
  kMaster
};  // The compute copy: in bf16, in fp32, the master itself.

// Five steps of one parameter on the device and on the processor, compared after each.
void ExpectTheProcessorsUpdates(Device& device, int64_t count, CopyOf kind) {
  std::vector<at::Tensor> here = State(count);
  std::vector<at::Tensor> there;
  for (const at::Tensor& tensor : here) {
    there.push_back(OnDevice(device, tensor.clone()));
  }
  if (kind == CopyOf::kMaster) {
    here.push_back(here[0]);
    there.push_back(there[0]);
  } else {
    const DType dtype = kind == CopyOf::kBF16 ? DType::kBF16 : DType::kF32;
    here.push_back(HostTensor({.dtype = dtype, .shape = {count}}));
    there.push_back(device.Empty({.dtype = dtype, .shape = {count}}));
  }
  AdamWStep step{.learning_rate = 3e-3, .clip_factor = 0.37, .weight_decay = 0.1};
  for (step.step = 1; step.step <= 5; ++step.step) {
    const at::Tensor gradient = Numbers(count, static_cast<uint64_t>(10 + step.step));
    at::Tensor there_gradient = OnDevice(device, gradient.clone());
    AdamWUpdate(here[0], here[1], here[2], gradient, here[4], step);
    device.Update([there, there_gradient, step]() mutable {
      AdamWUpdate(there[0], there[1], there[2], there_gradient, there[4], step);
    });
    const std::vector<std::string> names = {"master", "exp_avg", "exp_avg_sq", "", "copy"};
    for (const size_t i : {size_t{0}, size_t{1}, size_t{2}, size_t{4}}) {
      EXPECT_EQ(OtherBits(OnHost(device, there[i]), here[i]), 0)
          << names[i] << " of " << count << " elements, step " << step.step << ", copy "
          << static_cast<int>(kind);
    }
  }
}

TEST(DeviceCheck, UpdatesHaveTheProcessorsBits) {
  const c10::InferenceMode inference;
  auto device = OpenChecked();
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  for (const int64_t count : {int64_t{1}, int64_t{3}, int64_t{1024}, int64_t{4097}, int64_t{12290},
                              Size(20'001, 2'000'003), Size(20'004, 2'000'004)}) {
    for (const CopyOf kind : {CopyOf::kBF16, CopyOf::kF32, CopyOf::kMaster}) {
      ExpectTheProcessorsUpdates(**device, count, kind);
    }
  }
}

}  // namespace
}  // namespace heddle::runtime::testing
