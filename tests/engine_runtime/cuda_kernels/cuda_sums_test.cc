/// \file
/// Goal: the CUDA kernels that add rows to weights' gradients add all of them, in one order: the sums
/// are those of fp64 but for rounding, and where nothing else is computed they have the bits of the
/// processor's loops. The code runs on the processor (hosted.cc).
#include <cmath>

#include "tests/engine_runtime/cuda_kernels/cuda_kernels.h"

namespace heddle::runtime::cuda {
namespace {

class CudaSumsTest : public CudaKernelsTest {
 protected:
  at::Tensor SumOf(const at::Tensor& dy, const void* x, const float* mean, const float* rstd) {
    const RowShape shape{.type = value_type(), .rows = dy.size(0), .dim = dy.size(1)};
    at::Tensor sums = at::full({shape.dim}, std::nan(""));
    const at::Tensor scratch = at::full({ColumnSumScratch(shape.rows), shape.dim}, std::nan(""));
    ColumnSum(shape, dy.data_ptr(), x, mean, rstd, DataOf<float>(scratch), DataOf<float>(sums),
              nullptr);
    return sums;
  }
  // The operator by the processor's own loops.
  static at::Tensor Processors(const std::string& op,
                               const Attributes& attributes,
                               const std::vector<at::Tensor>& inputs) {
    PreferPlainAten(false);
    const at::Tensor result = RunKernel(op, attributes, inputs)[0];
    PreferPlainAten(true);
    return result;
  }
};

TEST_P(CudaSumsTest, WeightGradients) {
  const int64_t dim = Dim(264);
  for (const int64_t rows : {1, 64, 65, 134}) {  // Parts of 64 rows.
    SCOPED_TRACE(rows);
    const at::Tensor dy = Values({rows, dim});
    const at::Tensor x = Values({rows, dim});
    const at::Tensor mean = Wide({rows});
    const at::Tensor rstd = Wide({rows}, 3);
    ExpectClose(SumOf(dy, x.data_ptr(), nullptr, DataOf<float>(rstd)),
                Exact("rms_norm_weight_gradient", {}, {dy, x, rstd})[0], "of rms_norm");
    ExpectClose(SumOf(dy, x.data_ptr(), DataOf<float>(mean), DataOf<float>(rstd)),
                Exact("layer_norm_weight_gradient", {}, {dy, x, mean, rstd})[0], "of layer_norm");
    const at::Tensor dbias = SumOf(dy, nullptr, nullptr, nullptr);
    ExpectClose(dbias, Exact("bias_gradient", {}, {dy})[0], "of a bias");
    EXPECT_TRUE(at::equal(dbias, Processors("bias_gradient", {}, {dy})));
  }
}

// Samples are the rows, and their sum is a part of a table, which begins anywhere in it.
TEST_P(CudaSumsTest, PositionWeightGradient) {
  const int64_t dim = Dim(16);
  const Attributes attributes = {{"positions", int64_t{9}}, {"first_position", int64_t{3}}};
  const at::Tensor dy = Values({70, 5, dim});
  at::Tensor dweight = at::zeros({9, dim});
  const RowShape shape{.type = value_type(), .rows = 70, .dim = 5 * dim};
  const at::Tensor scratch = at::empty({ColumnSumScratch(70), 5 * dim});
  ColumnSum(shape, dy.data_ptr(), nullptr, nullptr, nullptr, DataOf<float>(scratch),
            DataOf<float>(dweight) + 3 * dim, nullptr);
  ExpectClose(dweight, Exact("position_weight_gradient", attributes, {dy})[0], "dweight");
  EXPECT_TRUE(at::equal(dweight, Processors("position_weight_gradient", attributes, {dy})));
}

TEST_P(CudaSumsTest, EmbeddingWeightGradient) {
  const int64_t dim = Dim(24);
  const at::Tensor dy = Values({4, 50, dim});
  at::Tensor tokens = Tokens({4, 50}, 30);
  tokens[1].fill_(12);  // A frequent one; those from 30 on are in no row.
  const auto [sorted, rows] = at::sort(tokens.reshape({-1}), /*stable=*/true, 0, false);
  for (const auto& [first, vocabulary] : {std::pair<int64_t, int64_t>{0, 40}, {11, 10}, {35, 5}}) {
    SCOPED_TRACE(first);
    const Attributes attributes = {{"vocabulary", vocabulary}, {"first_row", first}};
    at::Tensor dweight = at::full({vocabulary, dim}, std::nan(""));
    const at::Tensor scratch = at::empty({vocabulary + 1}, at::TensorOptions(at::kLong));
    cuda::EmbeddingWeightGradient({.type = value_type(), .rows = 200, .dim = dim}, dy.data_ptr(),
                                  {DataOf<int32_t>(sorted), DataOf<int64_t>(rows)}, first,
                                  vocabulary, DataOf<int64_t>(scratch), DataOf<float>(dweight),
                                  nullptr);
    const at::Tensor exact = Exact("embedding_weight_gradient", attributes, {dy, tokens})[0];
    EXPECT_LE((dweight.to(at::kDouble) - exact).abs().max().item<double>(), 1e-4);
    EXPECT_TRUE(
        at::equal(dweight, Processors("embedding_weight_gradient", attributes, {dy, tokens})));
  }
}

TEST_P(CudaSumsTest, NotANumberReachesItsSumsAndNoOthers) {
  const int64_t dim = Dim(24);
  at::Tensor dy = Values({70, dim});
  dy[3][7] = std::nan("");
  const at::Tensor sums = SumOf(dy, nullptr, nullptr, nullptr);
  EXPECT_TRUE(at::equal(at::isnan(sums), at::isnan(dy[3])));

  const at::Tensor tokens = at::arange(70, at::TensorOptions(at::kInt));
  const at::Tensor rows = at::arange(70, at::TensorOptions(at::kLong));
  const at::Tensor scratch = at::empty({71}, at::TensorOptions(at::kLong));
  at::Tensor dweight = at::empty({70, dim});
  cuda::EmbeddingWeightGradient({.type = value_type(), .rows = 70, .dim = dim}, dy.data_ptr(),
                                {DataOf<int32_t>(tokens), DataOf<int64_t>(rows)}, 0, 70,
                                DataOf<int64_t>(scratch), DataOf<float>(dweight), nullptr);
  EXPECT_TRUE(at::equal(at::isnan(dweight), at::isnan(dy)));
}

INSTANTIATE_TEST_SUITE_P(Forms, CudaSumsTest, Forms(), NameOf);

}  // namespace
}  // namespace heddle::runtime::cuda
