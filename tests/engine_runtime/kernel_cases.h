/// \file
/// Cases of every forward operator with random shapes. Each has a reference for the values and,
/// through libtorch's autograd, for the gradients: a composition of differentiable ATen operations
/// that shares nothing with the kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "base/random.h"
#include "engine/graph/attributes.h"

namespace heddle::runtime::testing {

/// An input to draw: normal values in the compute type when the rank is 2 or more, otherwise in the
/// master type; `limit` > 0: token ids below it.
struct InputSpec {
  std::vector<int64_t> shape;
  int64_t limit = 0;
  double mean = 0;
};

struct KernelCase {
  std::string op;
  graph::Attributes attributes;
  std::vector<InputSpec> inputs;
  /// Computes output 0 from fp64 inputs.
  std::function<at::Tensor(const std::vector<at::Tensor>&)> reference;
  /// The factor by which the operator amplifies the rounding of intermediate values, from fp64
  /// inputs; null: it does not.
  std::function<double(const std::vector<at::Tensor>&)> amplification = nullptr;
};

/// The factor by which a norm's gradient amplifies rounding: 1 / the row's deviation, and as many
/// times the rounding of its elements. The elements of a short row can lie close together.
inline double NormAmplification(const at::Tensor& x, const at::Tensor& centre, double epsilon) {
  const at::Tensor rstd = at::rsqrt(at::pow(x - centre, 2).mean(-1) + epsilon);
  return (rstd * at::clamp_min(x.abs().amax(-1) * rstd, 1)).max().item<double>();
}

/// Of a bias' gradient: one sum of so many terms, which may nearly cancel.
inline double SumOfRows(const std::vector<at::Tensor>& in) {
  return std::sqrt(static_cast<double>(in[0].size(0) * in[0].size(1)));
}

inline at::Tensor Long(const at::Tensor& tokens) {
  return tokens.to(at::kLong);
}

inline at::Tensor RotateReference(const at::Tensor& x,
                                  int64_t head_dim,
                                  double theta,
                                  double sign) {
  const int64_t length = x.size(1);
  const at::Tensor heads = x.view({x.size(0), length, -1, head_dim});
  // The formula of Hugging Face: cos and sin of both halves, and rotate_half.
  const auto options = at::TensorOptions(at::kDouble);
  const at::Tensor frequencies =
      at::pow(at::full({}, theta, options),
              -at::arange(0, head_dim, 2, options) / static_cast<double>(head_dim));
  const at::Tensor half = at::outer(at::arange(length, options), frequencies);
  const at::Tensor angles = at::cat({half, half}, 1).view({1, length, 1, head_dim});
  const at::Tensor low = heads.slice(3, 0, head_dim / 2);
  const at::Tensor high = heads.slice(3, head_dim / 2, head_dim);
  const at::Tensor rotated = at::cat({-high, low}, 3);
  return (heads * at::cos(angles) + rotated * at::sin(angles) * sign).view(x.sizes());
}

inline at::Tensor AttentionReference(const std::vector<at::Tensor>& in,
                                     int64_t heads,
                                     int64_t kv_heads) {
  const int64_t length = in[0].size(1);
  const int64_t head_dim = in[0].size(2) / heads;
  std::vector<at::Tensor> out;
  const at::Tensor allowed = at::tril(at::ones({length, length}, at::TensorOptions(at::kDouble)));
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t g = h / (heads / kv_heads);
    const at::Tensor q = in[0].slice(2, h * head_dim, (h + 1) * head_dim);
    const at::Tensor k = in[1].slice(2, g * head_dim, (g + 1) * head_dim);
    const at::Tensor v = in[2].slice(2, g * head_dim, (g + 1) * head_dim);
    const at::Tensor scores =
        at::einsum("btd,bsd->bts", {q, k}) / std::sqrt(static_cast<double>(head_dim));
    const at::Tensor weights = at::exp(scores) * allowed;
    out.push_back(at::einsum("bts,bsd->btd", {weights / weights.sum(2, true), v}));
  }
  return at::cat(out, 2);
}

/// One case of each forward operator, of shapes drawn from `random`.
inline std::vector<KernelCase> DrawCases(Random& random) {
  using In = std::vector<at::Tensor>;
  std::vector<KernelCase> cases;
  const int64_t batch = random.Between(1, 3);
  const int64_t length = random.Between(1, 70);
  const int64_t dim = random.Between(1, 90);
  const int64_t features = random.Between(1, 70);
  const int64_t vocabulary = random.Between(2, 300);
  const int64_t positions = length + random.Between(0, 5);
  const int64_t kv_heads = random.Between(1, 3);
  const int64_t heads = kv_heads * random.Between(1, 3);
  const int64_t head_dim = 2 * random.Between(1, 35);
  const double epsilon = 1e-5;
  const std::vector<int64_t> x{batch, length, dim};

  cases.push_back(
      {"embedding", {}, {{{batch, length}, vocabulary}, {{vocabulary, dim}}}, [](const In& in) {
         return at::index_select(in[1], 0, Long(in[0]).view(-1))
             .view({in[0].size(0), in[0].size(1), in[1].size(1)});
       }});
  cases.push_back({"add_position", {}, {{x}, {{positions, dim}}}, [length](const In& in) {
                     return in[0] + in[1].slice(0, 0, length).unsqueeze(0);
                   }});
  cases.push_back(
      {"rms_norm",
       {{"epsilon", epsilon}},
       {{x}, {{dim}, 0, 1.0}},
       [epsilon](const In& in) {
         return in[0] / at::sqrt(at::pow(in[0], 2).mean(-1, true) + epsilon) * in[1];
       },
       // A row of one element has a gradient that nearly cancels, of terms as large as its weight.
       [epsilon](const In& in) {
         return NormAmplification(in[0], at::zeros({}), epsilon) *
                std::max(1.0, in[1].abs().max().item<double>());
       }});
  cases.push_back(
      {"layer_norm",
       {{"epsilon", epsilon}},
       {{x, 0, 0.5}, {{dim}, 0, 1.0}, {{dim}}},
       [epsilon, dim](const In& in) { return at::layer_norm(in[0], {dim}, in[1], in[2], epsilon); },
       [epsilon](const In& in) {
         return NormAmplification(in[0], in[0].mean(-1, true), epsilon);
       }});
  cases.push_back({"linear", {}, {{x}, {{features, dim}}}, [](const In& in) {
                     return at::einsum("btk,nk->btn", {in[0], in[1]});
                   }});
  cases.push_back({"linear",
                   {},
                   {{x}, {{features, dim}}, {{features}}},
                   [](const In& in) {
                     return at::einsum("btk,nk->btn", {in[0], in[1]}) + in[2];
                   },
                   SumOfRows});
  for (const int64_t inverse : {0, 1}) {
    cases.push_back({"rope",
                     {{"head_dim", head_dim}, {"theta", 10000.0}, {"inverse", inverse}},
                     {{{batch, length, heads * head_dim}}},
                     [head_dim, inverse](const In& in) {
                       return RotateReference(in[0], head_dim, 10000.0, inverse != 0 ? -1 : 1);
                     }});
  }
  cases.push_back(
      {"attention",
       {{"heads", heads}, {"kv_heads", kv_heads}},
       {{{batch, length, heads * head_dim}},
        {{batch, length, kv_heads * head_dim}},
        {{batch, length, kv_heads * head_dim}}},
       [heads, kv_heads](const In& in) { return AttentionReference(in, heads, kv_heads); },
       // A short sequence's gradients of q and k are differences of products with v that nearly
       // cancel.
       [](const In& in) {
         return in[2].abs().max().item<double>() *
                std::max(in[0].abs().max().item<double>(), in[1].abs().max().item<double>());
       }});
  cases.push_back({"swiglu", {}, {{x}, {x}}, [](const In& in) {
                     return in[0] / (at::exp(-in[0]) + 1.0) * in[1];
                   }});
  cases.push_back(
      {"gelu", {}, {{x}}, [](const In& in) {
         return in[0] * 0.5 *
                (at::tanh((in[0] + at::pow(in[0], 3) * 0.044715) * std::sqrt(2.0 / M_PI)) + 1.0);
       }});
  cases.push_back({"add", {}, {{x}, {x}}, [](const In& in) { return in[0] + in[1]; }});
  cases.push_back(
      {"add_bias", {}, {{x}, {{dim}}}, [](const In& in) { return in[0] + in[1]; }, SumOfRows});
  cases.push_back({"cross_entropy",
                   {{"scale", 0.125}},
                   {{{batch, length, vocabulary}}, {{batch, length}, vocabulary}},
                   [](const In& in) {
                     const at::Tensor chosen =
                         at::log_softmax(in[0], 2).gather(2, Long(in[1]).unsqueeze(2));
                     return -chosen.sum() * 0.125;
                   }});
  return cases;
}

}  // namespace heddle::runtime::testing
