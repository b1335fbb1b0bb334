/// \file
/// An example of every operator: inputs that fit it, and the types of outputs that it must infer;
/// and examples of shares of a whole, for operators whose attributes say which share it is.
#pragma once

#include <string>
#include <vector>

#include "engine/graph/operator.h"

namespace heddle::testing {

struct Example {
  std::string op;
  std::vector<graph::TensorType> inputs;
  graph::Attributes attributes = {};
  std::vector<std::string> outputs;  ///< The outputs' types, as ToString writes them.
  int64_t token_bound = 0;           ///< Exclusive upper bound of int32 inputs' elements.
  bool positive = false;             ///< All values are above 0, because a logarithm is taken.
};

inline graph::TensorType F32(Shape shape) {
  return {DType::kF32, std::move(shape)};
}
inline graph::TensorType Bf16(Shape shape) {
  return {DType::kBF16, std::move(shape)};
}
inline graph::TensorType F64(Shape shape) {
  return {DType::kF64, std::move(shape)};
}
inline graph::TensorType I32(Shape shape) {
  return {DType::kI32, std::move(shape)};
}

inline std::vector<Example> Examples() {
  const graph::Attributes heads = {{"heads", int64_t{6}}, {"kv_heads", int64_t{3}}};
  // Three query heads, of which the second and third read the second key/value head.
  const graph::Attributes later_heads = {{"first_head", int64_t{1}},
                                         {"group", int64_t{2}},
                                         {"heads", int64_t{3}},
                                         {"kv_heads", int64_t{2}}};
  const graph::Attributes rope = {
      {"head_dim", int64_t{4}}, {"inverse", int64_t{0}}, {"theta", 50.0}};
  const graph::Attributes unrope = {
      {"head_dim", int64_t{4}}, {"inverse", int64_t{1}}, {"theta", 50.0}};
  const graph::Attributes later_rope = {{"first_position", int64_t{3}},
                                        {"head_dim", int64_t{4}},
                                        {"inverse", int64_t{0}},
                                        {"theta", 50.0}};
  const graph::Attributes epsilon = {{"epsilon", 1e-5}};
  const graph::Attributes scale = {{"scale", 0.25}};
  return {
      {"embedding", {I32({4, 5}), F32({7, 6})}, {}, {"fp32[4, 5, 6]"}, 7},
      {"embedding", {I32({4, 5}), Bf16({7, 6})}, {}, {"bf16[4, 5, 6]"}, 7},
      {"embedding", {I32({4, 5}), F32({4, 6})}, {{"first_row", int64_t{2}}}, {"fp32[4, 5, 6]"}, 7},
      {"embedding_weight_gradient",
       {F32({4, 5, 6}), I32({4, 5})},
       {{"first_row", int64_t{2}}, {"vocabulary", int64_t{4}}},
       {"fp32[4, 6]"},
       7},
      {"embedding_weight_gradient",
       {F32({4, 5, 6}), I32({4, 5})},
       {{"vocabulary", int64_t{7}}},
       {"fp32[7, 6]"},
       7},
      {"embedding_weight_gradient",
       {Bf16({4, 5, 6}), I32({4, 5})},
       {{"vocabulary", int64_t{7}}},
       {"fp32[7, 6]"},
       7},
      {"add_position", {F32({4, 5, 6}), F32({8, 6})}, {}, {"fp32[4, 5, 6]"}},
      {"add_position", {F64({4, 5, 6}), F64({5, 6})}, {}, {"fp64[4, 5, 6]"}},
      {"add_position",
       {F32({4, 5, 6}), F32({8, 6})},
       {{"first_position", int64_t{2}}},
       {"fp32[4, 5, 6]"}},
      {"position_weight_gradient",
       {F32({4, 5, 6})},
       {{"first_position", int64_t{2}}, {"positions", int64_t{8}}},
       {"fp32[8, 6]"}},
      {"position_weight_gradient", {Bf16({4, 5, 6})}, {{"positions", int64_t{8}}}, {"fp32[8, 6]"}},
      {"position_weight_gradient", {F64({4, 5, 6})}, {{"positions", int64_t{5}}}, {"fp64[5, 6]"}},
      {"rms_norm", {Bf16({4, 5, 6}), F32({6})}, epsilon, {"bf16[4, 5, 6]", "fp32[4, 5]"}},
      {"rms_norm", {F64({4, 6}), F64({6})}, epsilon, {"fp64[4, 6]", "fp64[4]"}},
      {"rms_norm_input_gradient",
       {F32({4, 5, 6}), F32({4, 5, 6}), F32({6}), F32({4, 5})},
       {},
       {"fp32[4, 5, 6]"}},
      {"rms_norm_weight_gradient",
       {Bf16({4, 5, 6}), Bf16({4, 5, 6}), F32({4, 5})},
       {},
       {"fp32[6]"}},
      {"layer_norm",
       {Bf16({4, 5, 6}), F32({6}), F32({6})},
       epsilon,
       {"bf16[4, 5, 6]", "fp32[4, 5]", "fp32[4, 5]"}},
      {"layer_norm_input_gradient",
       {F32({4, 5, 6}), F32({4, 5, 6}), F32({6}), F32({4, 5}), F32({4, 5})},
       {},
       {"fp32[4, 5, 6]"}},
      {"layer_norm_weight_gradient",
       {F32({4, 5, 6}), F32({4, 5, 6}), F32({4, 5}), F32({4, 5})},
       {},
       {"fp32[6]"}},
      {"linear", {F32({4, 5, 6}), F32({7, 6})}, {}, {"fp32[4, 5, 7]"}},
      {"linear", {Bf16({4, 5, 6}), Bf16({7, 6}), F32({7})}, {}, {"bf16[4, 5, 7]"}},
      {"linear", {F64({4, 6}), F64({7, 6}), F64({7})}, {}, {"fp64[4, 7]"}},
      {"linear_input_gradient", {F32({4, 5, 7}), F32({7, 6})}, {}, {"fp32[4, 5, 6]"}},
      {"linear_weight_gradient", {Bf16({4, 5, 7}), Bf16({4, 5, 6})}, {}, {"fp32[7, 6]"}},
      {"linear_weight_gradient", {F32({4, 7}), F32({4, 6})}, {}, {"fp32[7, 6]"}},
      {"bias_gradient", {Bf16({4, 5, 7})}, {}, {"fp32[7]"}},
      {"rope", {F32({4, 5, 12})}, rope, {"fp32[4, 5, 12]"}},
      {"rope", {F32({4, 5, 12})}, later_rope, {"fp32[4, 5, 12]"}},
      {"rope", {Bf16({4, 5, 12})}, unrope, {"bf16[4, 5, 12]"}},
      {"attention",
       {F32({4, 5, 12}), F32({4, 5, 6}), F32({4, 5, 6})},
       heads,
       {"fp32[4, 5, 12]", "fp32[4, 6, 5]"}},
      {"attention",
       {F32({4, 5, 6}), F32({4, 5, 4}), F32({4, 5, 4})},
       later_heads,
       {"fp32[4, 5, 6]", "fp32[4, 3, 5]"}},
      {"attention",
       {Bf16({2, 5, 9}), Bf16({2, 5, 9}), Bf16({2, 5, 9})},
       {{"heads", int64_t{3}}, {"kv_heads", int64_t{3}}},
       {"bf16[2, 5, 9]", "fp32[2, 3, 5]"}},
      {"attention_gradient",
       {F32({4, 5, 12}), F32({4, 5, 12}), F32({4, 5, 6}), F32({4, 5, 6}), F32({4, 5, 12}),
        F32({4, 6, 5})},
       heads,
       {"fp32[4, 5, 12]", "fp32[4, 5, 6]", "fp32[4, 5, 6]"}},
      {"attention_gradient",
       {F32({4, 5, 6}), F32({4, 5, 6}), F32({4, 5, 4}), F32({4, 5, 4}), F32({4, 5, 6}),
        F32({4, 3, 5})},
       later_heads,
       {"fp32[4, 5, 6]", "fp32[4, 5, 4]", "fp32[4, 5, 4]"}},
      {"swiglu", {Bf16({4, 5, 6}), Bf16({4, 5, 6})}, {}, {"bf16[4, 5, 6]"}},
      {"swiglu_gradient",
       {F32({4, 5, 6}), F32({4, 5, 6}), F32({4, 5, 6})},
       {},
       {"fp32[4, 5, 6]", "fp32[4, 5, 6]"}},
      {"gelu", {F32({4, 5, 6})}, {}, {"fp32[4, 5, 6]"}},
      {"gelu_gradient", {F32({4, 5, 6}), F32({4, 5, 6})}, {}, {"fp32[4, 5, 6]"}},
      {"add", {Bf16({4, 5, 6}), Bf16({4, 5, 6})}, {}, {"bf16[4, 5, 6]"}},
      {"add_bias", {Bf16({4, 5, 6}), F32({6})}, {}, {"bf16[4, 5, 6]"}},
      {"add_bias", {F64({4, 6}), F64({6})}, {}, {"fp64[4, 6]"}},
      {"dropout", {F32({4, 5, 6})}, {{"p", 0.3}, {"site", int64_t{2}}}, {"fp32[4, 5, 6]"}},
      {"dropout",
       {F32({4, 5, 6})},
       {{"features", int64_t{9}},
        {"first_feature", int64_t{2}},
        {"first_position", int64_t{3}},
        {"p", 0.3},
        {"site", int64_t{2}}},
       {"fp32[4, 5, 6]"}},
      {"cross_entropy", {Bf16({4, 5, 7}), I32({4, 5})}, scale, {"fp64[]", "fp32[4, 5]"}, 7},
      {"row_max", {Bf16({4, 5, 7})}, {}, {"fp32[4, 5]"}},
      {"exp_sum", {Bf16({4, 5, 7}), I32({4, 5}), F32({4, 5})}, {}, {"fp32[4, 5, 2]"}, 7},
      {"exp_sum",
       {F64({4, 5, 4}), I32({4, 5}), F64({4, 5})},
       {{"first_row", int64_t{2}}},
       {"fp64[4, 5, 2]"},
       7},
      {"cross_entropy_of_sums",
       {F32({4, 5}), F32({4, 5, 2})},
       scale,
       {"fp64[]", "fp32[4, 5]"},
       0,
       true},
      {"cross_entropy_gradient",
       {F32({4, 5, 7}), I32({4, 5}), F32({4, 5})},
       scale,
       {"fp32[4, 5, 7]"},
       7},
      {"cross_entropy_gradient",
       {F32({4, 5, 4}), I32({4, 5}), F32({4, 5})},
       {{"first_row", int64_t{2}}, {"scale", 0.25}},
       {"fp32[4, 5, 4]"},
       7},
  };
}

}  // namespace heddle::testing
