/// \file
/// Goal: the CUDA kernels of attention compute what the operator's plain form computes in fp64, for
/// sequences of several tiles, heads in groups, and shares that begin and end within a group. The
/// code runs on the processor (hosted.cc).
#include <cmath>

#include "tests/engine_runtime/cuda_kernels/cuda_kernels.h"

namespace heddle::runtime::cuda {
namespace {

struct Case {
  int64_t batch;
  int64_t length;
  int64_t heads;
  int64_t kv_heads;
  int64_t group;
  int64_t first_head;
  int64_t head_dim;
};

class CudaAttentionTest : public CudaKernelsTest {
 protected:
  HeadShape ShapeOf(const Case& one) const {
    return {.type = value_type(),
            .batch = one.batch,
            .length = one.length,
            .heads = one.heads,
            .kv_heads = one.kv_heads,
            .group = one.group,
            .before = one.first_head % one.group,
            .head_dim = one.head_dim};
  }
  // [batch, length, heads * head_dim]
  at::Tensor Heads(const Case& one, int64_t heads) {
    return Values({one.batch, one.length, heads * one.head_dim});
  }
};

TEST_P(CudaAttentionTest, ForwardAndGradient) {
  for (const Case& one : {Case{2, 20, 1, 1, 1, 0, Dim(8)}, Case{1, 64, 2, 2, 1, 0, 64},
                          Case{1, 150, 4, 2, 2, 0, Dim(40)}, Case{2, 70, 4, 2, 3, 2, Dim(104)}}) {
    SCOPED_TRACE(one.length);
    const at::Tensor q = Heads(one, one.heads);
    const at::Tensor k = Heads(one, one.kv_heads);
    const at::Tensor v = Heads(one, one.kv_heads);
    const at::Tensor dout = Heads(one, one.heads);
    at::Tensor o = at::empty_like(q);
    at::Tensor lse = at::empty({one.batch, one.heads, one.length});
    cuda::Attention(ShapeOf(one), q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(),
                    DataOf<float>(lse), nullptr);
    const Attributes attributes = {{"heads", one.heads},
                                   {"kv_heads", one.kv_heads},
                                   {"group", one.group},
                                   {"first_head", one.first_head}};
    const auto exact = Exact("attention", attributes, {q, k, v});
    ExpectClose(o, exact[0], "o");
    ExpectClose(lse, exact[1], "lse");

    at::Tensor delta = at::empty_like(lse);
    at::Tensor dq = at::empty_like(q);
    at::Tensor dk = at::empty_like(k);
    at::Tensor dv = at::empty_like(v);
    cuda::AttentionGradient(ShapeOf(one), dout.data_ptr(), q.data_ptr(), k.data_ptr(), v.data_ptr(),
                            o.data_ptr(), DataOf<float>(lse), DataOf<float>(delta), dq.data_ptr(),
                            dk.data_ptr(), dv.data_ptr(), nullptr);
    const auto gradients = Exact("attention_gradient", attributes, {dout, q, k, v, o, lse});
    ExpectClose(dq, gradients[0], "dq");
    ExpectClose(dk, gradients[1], "dk");
    ExpectClose(dv, gradients[2], "dv");
  }
}

// Large scores must not overflow, and what is not a number reaches the tokens that read it.
TEST_P(CudaAttentionTest, LargeScoresAndNotANumber) {
  const Case one{2, 100, 1, 1, 1, 0, Dim(8)};
  at::Tensor q = Heads(one, 1) * 20;
  const at::Tensor k = Heads(one, 1) * 20;
  const at::Tensor v = Heads(one, 1);
  at::Tensor o = at::empty_like(q);
  at::Tensor lse = at::empty({2, 1, 100});
  const auto forward = [&] {
    cuda::Attention(ShapeOf(one), q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(),
                    DataOf<float>(lse), nullptr);
  };
  forward();
  const Attributes attributes = {{"heads", int64_t{1}}, {"kv_heads", int64_t{1}}};
  const auto exact = Exact("attention", attributes, {q, k, v});
  EXPECT_GT(exact[1].max().item<double>(), 500);
  ExpectClose(lse, exact[1], "lse");
  EXPECT_TRUE(at::isfinite(o).all().item<bool>());

  q[0][80][3] = std::nan("");
  forward();
  EXPECT_TRUE(at::isnan(o[0][80]).all().item<bool>());
  EXPECT_TRUE(std::isnan(lse[0][0][80].item<double>()));
  EXPECT_TRUE(at::isfinite(o[1]).all().item<bool>());
  EXPECT_TRUE(at::isfinite(o[0].narrow(0, 0, 80)).all().item<bool>());
}

INSTANTIATE_TEST_SUITE_P(Forms, CudaAttentionTest, Forms(), NameOf);

}  // namespace
}  // namespace heddle::runtime::cuda
