/// \file
/// Goal: the code of the CUDA kernels computes what the operators mean. It runs on the processor
/// (hosted.cc) and is compared with the operators' plain form in fp64, which shares nothing with
/// it; dropout drops the very same elements.
#include "tests/engine_runtime/cuda_kernels/cuda_kernels.h"

#include <cmath>

#include "engine/runtime/adamw.h"
#include "engine/runtime/kernels/dropout_key.h"
#include "engine/runtime/kernels/rope_tables.h"

namespace heddle::runtime::cuda {
namespace {

TEST_P(CudaKernelsTest, RmsNorm) {
  const int64_t dim = Dim(264);
  const RowShape shape{.type = value_type(), .rows = 2 * 3, .dim = dim};
  const at::Tensor x = Values({2, 3, dim});
  const at::Tensor dy = Values({2, 3, dim});
  const at::Tensor weight = Wide({dim}, 1);
  at::Tensor y = at::empty_like(x);
  at::Tensor rstd = at::empty({2, 3});
  cuda::RmsNorm(shape, x.data_ptr(), DataOf<float>(weight), y.data_ptr(), DataOf<float>(rstd),
                1e-5F, nullptr);
  const auto exact = Exact("rms_norm", {{"epsilon", 1e-5}}, {x, weight});
  ExpectClose(y, exact[0], "y");
  ExpectClose(rstd, exact[1], "rstd");

  at::Tensor dx = at::empty_like(x);
  RmsNormInputGradient(shape, dy.data_ptr(), x.data_ptr(), DataOf<float>(weight),
                       DataOf<float>(rstd), dx.data_ptr(), nullptr);
  ExpectClose(dx, Exact("rms_norm_input_gradient", {}, {dy, x, weight, rstd})[0], "dx");
}

TEST_P(CudaKernelsTest, LayerNorm) {
  // The larger is more than a block has threads for at once.
  for (const int64_t size : {264, 8400}) {
    const int64_t dim = Dim(size);
    const RowShape shape{.type = value_type(), .rows = 2 * 3, .dim = dim};
    const at::Tensor x = Wide({2, 3, dim}, 5).to(type());  // Far from 0, which must not matter.
    const at::Tensor dy = Values({2, 3, dim});
    const at::Tensor weight = Wide({dim}, 1);
    const at::Tensor bias = Wide({dim});
    at::Tensor y = at::empty_like(x);
    at::Tensor mean = at::empty({2, 3});
    at::Tensor rstd = at::empty({2, 3});
    cuda::LayerNorm(shape, x.data_ptr(), DataOf<float>(weight), DataOf<float>(bias), y.data_ptr(),
                    DataOf<float>(mean), DataOf<float>(rstd), 1e-5F, nullptr);
    const auto exact = Exact("layer_norm", {{"epsilon", 1e-5}}, {x, weight, bias});
    ExpectClose(y, exact[0], "y");
    ExpectClose(mean, exact[1], "mean");
    ExpectClose(rstd, exact[2], "rstd");

    at::Tensor dx = at::empty_like(x);
    LayerNormInputGradient(shape, dy.data_ptr(), x.data_ptr(), DataOf<float>(weight),
                           DataOf<float>(mean), DataOf<float>(rstd), dx.data_ptr(), nullptr);
    ExpectClose(dx, Exact("layer_norm_input_gradient", {}, {dy, x, weight, mean, rstd})[0], "dx");
  }
}

TEST_P(CudaKernelsTest, NotANumberStaysInItsRow) {
  const int64_t dim = Dim(40);
  const RowShape shape{.type = value_type(), .rows = 2, .dim = dim};
  at::Tensor x = Values({1, 2, dim});
  x[0][1][17] = std::nan("");
  const at::Tensor weight = Wide({dim}, 1);
  at::Tensor y = at::empty_like(x);
  at::Tensor mean = at::empty({1, 2});
  at::Tensor rstd = at::empty({1, 2});
  cuda::LayerNorm(shape, x.data_ptr(), DataOf<float>(weight), DataOf<float>(weight), y.data_ptr(),
                  DataOf<float>(mean), DataOf<float>(rstd), 1e-5F, nullptr);
  EXPECT_TRUE(at::isfinite(y[0][0]).all().item<bool>());
  EXPECT_TRUE(at::isnan(y[0][1]).all().item<bool>());
  EXPECT_TRUE(std::isnan(mean[0][1].item<double>()));
  EXPECT_TRUE(std::isnan(rstd[0][1].item<double>()));
  cuda::Gelu(value_type(), 2 * dim, x.data_ptr(), y.data_ptr(), nullptr);
  EXPECT_TRUE(at::equal(at::isnan(y), at::isnan(x)));
}

TEST_P(CudaKernelsTest, Rope) {
  const int64_t half = Dim(8);
  for (const int64_t inverse : {0, 1}) {
    const at::Tensor x = Values({2, 5, 3 * 2 * half});
    const auto& [cosines, sines] = RopeTables(x.to(at::kFloat), 4, 2 * half, 10000.0);
    at::Tensor y = at::empty_like(x);
    cuda::Rope({.type = value_type(), .rows = 10, .length = 5, .heads = 3, .half = half},
               x.data_ptr(), DataOf<float>(cosines), DataOf<float>(sines), y.data_ptr(),
               inverse != 0, nullptr);
    const Attributes attributes = {{"head_dim", 2 * half},
                                   {"theta", 10000.0},
                                   {"inverse", inverse},
                                   {"first_position", int64_t{4}}};
    ExpectClose(y, Exact("rope", attributes, {x})[0], "y");
  }
}

TEST_P(CudaKernelsTest, Swiglu) {
  const int64_t count = Dim(4000);
  const at::Tensor gate = Values({1, 1, count});
  const at::Tensor up = Values({1, 1, count});
  const at::Tensor dy = Values({1, 1, count});
  at::Tensor y = at::empty_like(gate);
  cuda::Swiglu(value_type(), count, gate.data_ptr(), up.data_ptr(), y.data_ptr(), nullptr);
  ExpectClose(y, Exact("swiglu", {}, {gate, up})[0], "y");
  at::Tensor dgate = at::empty_like(gate);
  at::Tensor dup = at::empty_like(gate);
  SwigluGradient(value_type(), count, dy.data_ptr(), gate.data_ptr(), up.data_ptr(),
                 dgate.data_ptr(), dup.data_ptr(), nullptr);
  const auto exact = Exact("swiglu_gradient", {}, {dy, gate, up});
  ExpectClose(dgate, exact[0], "dgate");
  ExpectClose(dup, exact[1], "dup");
}

TEST_P(CudaKernelsTest, Gelu) {
  const int64_t count = Dim(4000);
  const at::Tensor x = (Wide({1, 1, count}) * 4).to(type());  // Up to 8, where it is flat.
  const at::Tensor dy = Values({1, 1, count});
  at::Tensor y = at::empty_like(x);
  cuda::Gelu(value_type(), count, x.data_ptr(), y.data_ptr(), nullptr);
  ExpectClose(y, Exact("gelu", {}, {x})[0], "y");
  at::Tensor dx = at::empty_like(x);
  GeluGradient(value_type(), count, dy.data_ptr(), x.data_ptr(), dx.data_ptr(), nullptr);
  ExpectClose(dx, Exact("gelu_gradient", {}, {dy, x})[0], "dx");
}

TEST_P(CudaKernelsTest, CrossEntropy) {
  const int64_t dim = Dim(5000);  // More than a block has threads for at once.
  const RowShape shape{.type = value_type(), .rows = 12, .dim = dim};
  const at::Tensor logits = Values({3, 4, dim});
  const at::Tensor targets = Tokens({3, 4}, dim);
  at::Tensor lse = at::empty({3, 4});
  at::Tensor losses = at::empty({3, 4});
  at::Tensor total = at::empty({}, at::TensorOptions(at::kDouble));
  cuda::CrossEntropy(shape, logits.data_ptr(), DataOf<int32_t>(targets), DataOf<float>(lse),
                     DataOf<float>(losses), DataOf<double>(total), 0.25, nullptr);
  const Attributes attributes = {{"scale", 0.25}};
  const auto exact = Exact("cross_entropy", attributes, {logits, targets});
  ExpectClose(lse, exact[1], "lse");
  EXPECT_NEAR(total.item<double>(), exact[0].item<double>(), 1e-5 * exact[0].item<double>());

  at::Tensor dlogits = at::empty_like(logits);
  cuda::CrossEntropyGradient(shape, logits.data_ptr(), DataOf<int32_t>(targets), DataOf<float>(lse),
                             dlogits.data_ptr(), 0, 0.25F, nullptr);
  ExpectClose(dlogits, Exact("cross_entropy_gradient", attributes, {logits, targets, lse})[0],
              "dlogits");
  // A share of the vocabulary, which only some targets are in.
  const at::Tensor shifted = targets + 1000;
  at::Tensor share = at::empty_like(logits);
  cuda::CrossEntropyGradient(shape, logits.data_ptr(), DataOf<int32_t>(shifted), DataOf<float>(lse),
                             share.data_ptr(), 2000, 0.25F, nullptr);
  const Attributes of_share = {{"scale", 0.25}, {"first_row", int64_t{2000}}};
  ExpectClose(share, Exact("cross_entropy_gradient", of_share, {logits, shifted, lse})[0], "share");
}

TEST_P(CudaKernelsTest, NotANumberReachesTheLoss) {
  const int64_t dim = Dim(40);
  at::Tensor logits = Values({1, 2, dim});
  logits[0][1][17] = std::nan("");
  const at::Tensor targets = at::zeros({1, 2}, at::TensorOptions(at::kInt));
  at::Tensor lse = at::empty({1, 2});
  at::Tensor losses = at::empty({1, 2});
  at::Tensor total = at::empty({}, at::TensorOptions(at::kDouble));
  cuda::CrossEntropy({.type = value_type(), .rows = 2, .dim = dim}, logits.data_ptr(),
                     DataOf<int32_t>(targets), DataOf<float>(lse), DataOf<float>(losses),
                     DataOf<double>(total), 1, nullptr);
  EXPECT_TRUE(std::isnan(total.item<double>()));
  EXPECT_TRUE(std::isfinite(lse[0][0].item<double>()));
}

TEST_P(CudaKernelsTest, DropoutDropsTheSameElements) {
  const int64_t dim = Dim(24);
  const at::Tensor x = Values({3, 5, dim});
  const KernelContext context{.seed = 7, .step = 3, .first_sample = 11};
  const int64_t features = dim + 10;  // The whole's: here is a share of them.
  graph::Node node;
  node.op = graph::FindOperator("dropout");
  node.attributes = {{"p", 0.3},
                     {"site", int64_t{2}},
                     {"features", features},
                     {"first_feature", int64_t{6}},
                     {"first_position", int64_t{2}}};
  const at::Tensor expected = FindKernel("dropout")(node, std::vector{x}, context)[0];
  at::Tensor y = at::empty_like(x);
  cuda::Dropout({.type = value_type(), .rows = 15, .dim = dim},
                {.key = DropoutKey(node, context),
                 .threshold = DropoutThreshold(0.3),
                 .first_sample = context.first_sample,
                 .length = 5,
                 .first = 2 * features + 6,
                 .stride = features},
                x.data_ptr(), y.data_ptr(), static_cast<float>(1 / 0.7), nullptr);
  EXPECT_TRUE(at::equal(y == 0, expected == 0));
  EXPECT_GT((y == 0).sum().item<int64_t>(), 0);
  ExpectClose(y, expected.to(at::kDouble), "y");
}

TEST_P(CudaKernelsTest, AdamWAndSquares) {
  const int64_t count = Dim(9000);  // Two blocks of squares, and a part of one.
  const at::Tensor master = Wide({count});
  const at::Tensor m = Wide({count}) * 0.1;
  const at::Tensor v = Wide({count}).square() * 0.01;
  const at::Tensor g = Wide({count});
  at::Tensor sums = at::empty({(count + 4095) / 4096}, at::TensorOptions(at::kDouble));
  SumSquares(DataOf<float>(g), count, DataOf<double>(sums), nullptr);
  const at::Tensor exact_sums =
      at::constant_pad_nd(g.to(at::kDouble).square(), {0, sums.numel() * 4096 - count})
          .view({-1, 4096})
          .sum({1});
  EXPECT_TRUE(at::allclose(sums, exact_sums, 1e-12));

  const double rate = 1e-2 / 0.271;
  const at::Tensor wide = g.to(at::kDouble) * 0.5;
  const at::Tensor exact_m = m.to(at::kDouble) * 0.9 + wide * 0.1;
  const at::Tensor exact_v = v.to(at::kDouble) * 0.999 + wide * wide * 0.001;
  const at::Tensor exact =
      master.to(at::kDouble) * 0.99 - rate * exact_m / (exact_v.sqrt() * 1.5 + 1e-8);
  at::Tensor copy = at::empty({count}, at::TensorOptions(type()));
  cuda::AdamW(DataOf<float>(master), DataOf<float>(m), DataOf<float>(v), DataOf<float>(g),
              value_type(), copy.data_ptr(), count,
              {.clip = 0.5F,
               .decay = 0.99F,
               .beta1 = 0.9F,
               .rest1 = 0.1F,
               .beta2 = 0.999F,
               .rest2 = 0.001F,
               .rate = static_cast<float>(rate),
               .root = 1.5F,
               .epsilon = 1e-8F},
              nullptr);
  ExpectClose(master, exact, "master");
  ExpectClose(m, exact_m, "exp_avg");
  ExpectClose(v, exact_v, "exp_avg_sq");
  EXPECT_TRUE(at::equal(copy, master.to(type())));
}

// A worker on a card and one on a processor may hold the same parameters, and one of them a part of
// what the other has, which begins anywhere.
TEST_P(CudaKernelsTest, AdamWHasTheProcessorsBits) {
  PreferPlainAten(false);
  for (const int64_t offset : {0, 1, 2}) {
    const int64_t count = Dim(9000);
    std::vector<at::Tensor> there = {Wide({count + offset}), Wide({count + offset}) * 0.1,
                                     Wide({count + offset}).square() * 0.01,
                                     Wide({count + offset})};
    for (at::Tensor& tensor : there) {
      tensor = tensor.narrow(0, offset, count);
    }
    std::vector<at::Tensor> here;
    for (const at::Tensor& tensor : there) {
      here.push_back(tensor.clone());
    }
    at::Tensor copy_there = at::empty({count}, at::TensorOptions(type()));
    at::Tensor copy_here = at::empty({count}, at::TensorOptions(type()));
    AdamWStep step{.learning_rate = 3e-3, .clip_factor = 0.37, .weight_decay = 0.1};
    for (step.step = 1; step.step <= 5; ++step.step) {
      AdamWUpdate(here[0], here[1], here[2], here[3], copy_here, step);
      const auto rounded = [](double value) { return static_cast<float>(value); };
      cuda::AdamW(
          DataOf<float>(there[0]), DataOf<float>(there[1]), DataOf<float>(there[2]),
          DataOf<float>(there[3]), value_type(), copy_there.data_ptr(), count,
          {.clip = rounded(step.clip_factor),
           .decay = rounded(1 - step.learning_rate * step.weight_decay),
           .beta1 = rounded(step.beta1),
           .rest1 = rounded(1 - step.beta1),
           .beta2 = rounded(step.beta2),
           .rest2 = rounded(1 - step.beta2),
           .rate = rounded(step.learning_rate /
                           (1 - std::pow(step.beta1, static_cast<double>(step.step)))),
           .root = rounded(1 / std::sqrt(1 - std::pow(step.beta2, static_cast<double>(step.step)))),
           .epsilon = rounded(step.epsilon)},
          nullptr);
      for (size_t i = 0; i < here.size(); ++i) {
        EXPECT_TRUE(at::equal(here[i], there[i])) << "step " << step.step << ", tensor " << i;
      }
      EXPECT_TRUE(at::equal(copy_here, copy_there)) << "step " << step.step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, CudaKernelsTest, Forms(), NameOf);

}  // namespace
}  // namespace heddle::runtime::cuda
