#include <cmath>
#include <numbers>

#include "tests/support/graph/dense_operators.h"

namespace heddle::testing {
namespace {

using graph::Attributes;
using Outputs = std::vector<DenseTensor>;

Outputs EmbeddingWeightGradient(const Attributes& attributes, DenseInputs in, const DenseContext&) {
  const int64_t features = in[0].columns();
  DenseTensor dweight({attributes.Int("vocabulary"), features});
  for (int64_t r = 0; r < in[0].rows(); ++r) {
    const int64_t row = OwnRow(attributes, in[1][r], dweight.shape[0]);
    for (int64_t j = 0; row >= 0 && j < features; ++j) {
      dweight[row * features + j] += in[0][r * features + j];
    }
  }
  return {dweight};
}

Outputs PositionWeightGradient(const Attributes& attributes, DenseInputs in, const DenseContext&) {
  const int64_t features = in[0].columns();
  DenseTensor dweight({attributes.Int("positions"), features});
  for (int64_t r = 0; r < in[0].rows(); ++r) {
    const int64_t position = First(attributes, "first_position") + r % in[0].shape[1];
    for (int64_t j = 0; j < features; ++j) {
      dweight[position * features + j] += in[0][r * features + j];
    }
  }
  return {dweight};
}

/// y_j = x_j · s · w_j with s = (mean x² + ε)^(-1/2): dx_i = Σ_j dy_j w_j (δ_ij s − x_j x_i s³ /
/// n).
Outputs RmsNormInputGradient(const Attributes&, DenseInputs in, const DenseContext&) {
  const DenseTensor& x = in[1];
  DenseTensor dx(x.shape);
  const int64_t n = x.columns();
  for (int64_t r = 0; r < x.rows(); ++r) {
    const double s = in[3][r];
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        const double derivative =
            (i == j ? s : 0) - x[r * n + j] * x[r * n + i] * s * s * s / static_cast<double>(n);
        dx[r * n + i] += in[0][r * n + j] * in[2][j] * derivative;
      }
    }
  }
  return {dx};
}

Outputs RmsNormWeightGradient(const Attributes&, DenseInputs in, const DenseContext&) {
  const int64_t n = in[0].columns();
  DenseTensor dweight({n});
  for (int64_t r = 0; r < in[0].rows(); ++r) {
    for (int64_t j = 0; j < n; ++j) {
      dweight[j] += in[0][r * n + j] * in[1][r * n + j] * in[2][r];
    }
  }
  return {dweight};
}

/// With h = (x − mean) · s: ∂h_j/∂x_i = s (δ_ij − 1/n − h_i h_j / n).
Outputs LayerNormInputGradient(const Attributes&, DenseInputs in, const DenseContext&) {
  const DenseTensor& x = in[1];
  DenseTensor dx(x.shape);
  const int64_t n = x.columns();
  for (int64_t r = 0; r < x.rows(); ++r) {
    const double s = in[4][r];
    auto normalised = [&](int64_t j) { return (x[r * n + j] - in[3][r]) * s; };
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        const double derivative =
            s * ((i == j ? 1 : 0) - (1 + normalised(i) * normalised(j)) / static_cast<double>(n));
        dx[r * n + i] += in[0][r * n + j] * in[2][j] * derivative;
      }
    }
  }
  return {dx};
}

Outputs LayerNormWeightGradient(const Attributes&, DenseInputs in, const DenseContext&) {
  const int64_t n = in[0].columns();
  DenseTensor dweight({n});
  for (int64_t r = 0; r < in[0].rows(); ++r) {
    for (int64_t j = 0; j < n; ++j) {
      dweight[j] += in[0][r * n + j] * (in[1][r * n + j] - in[2][r]) * in[3][r];
    }
  }
  return {dweight};
}

Outputs LinearInputGradient(const Attributes&, DenseInputs in, const DenseContext&) {
  const int64_t n = in[1].shape[0];
  const int64_t k = in[1].shape[1];
  Shape shape = in[0].shape;
  shape.back() = k;
  DenseTensor dx(shape);
  for (int64_t r = 0; r < in[0].rows(); ++r) {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < k; ++j) {
        dx[r * k + j] += in[0][r * n + i] * in[1][i * k + j];
      }
    }
  }
  return {dx};
}

Outputs LinearWeightGradient(const Attributes&, DenseInputs in, const DenseContext&) {
  const int64_t n = in[0].columns();
  const int64_t k = in[1].columns();
  DenseTensor dweight({n, k});
  for (int64_t r = 0; r < in[0].rows(); ++r) {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < k; ++j) {
        dweight[i * k + j] += in[0][r * n + i] * in[1][r * k + j];
      }
    }
  }
  return {dweight};
}

Outputs BiasGradient(const Attributes&, DenseInputs in, const DenseContext&) {
  const int64_t n = in[0].columns();
  DenseTensor dbias({n});
  for (int64_t e = 0; e < ElementCount(in[0].shape); ++e) {
    dbias[e % n] += in[0][e];
  }
  return {dbias};
}

/// Inputs do, q, k, v, o, lse. ds = p · (dp − do·o), p = exp(q·k/√d − lse).
Outputs AttentionGradient(const Attributes& attributes, DenseInputs in, const DenseContext&) {
  const int64_t heads = attributes.Int("heads");
  const int64_t length = in[1].shape[1];
  const int64_t d = in[1].shape[2] / heads;
  const double scale = 1 / std::sqrt(static_cast<double>(d));
  DenseTensor dq(in[1].shape);
  DenseTensor dk(in[2].shape);
  DenseTensor dv(in[3].shape);
  for (int64_t e = 0; e < ElementCount(in[5].shape); ++e) {
    const int64_t t = e % length;
    const int64_t head = e / length % heads;
    const int64_t b = e / length / heads;
    const int64_t q = (b * length + t) * in[1].shape[2] + head * d;
    double delta = 0;
    for (int64_t j = 0; j < d; ++j) {
      delta += in[0][q + j] * in[4][q + j];
    }
    for (int64_t s = 0; s <= t; ++s) {
      const int64_t k = (b * length + s) * in[2].shape[2] + KvHead(attributes, head) * d;
      double score = 0;
      double dp = 0;
      for (int64_t j = 0; j < d; ++j) {
        score += in[1][q + j] * in[2][k + j] * scale;
        dp += in[0][q + j] * in[3][k + j];
      }
      const double p = std::exp(score - in[5][e]);
      const double ds = p * (dp - delta) * scale;
      for (int64_t j = 0; j < d; ++j) {
        dq[q + j] += ds * in[2][k + j];
        dk[k + j] += ds * in[1][q + j];
        dv[k + j] += p * in[0][q + j];
      }
    }
  }
  return {dq, dk, dv};
}

Outputs SwigluGradient(const Attributes&, DenseInputs in, const DenseContext&) {
  DenseTensor dgate(in[1].shape);
  DenseTensor dup(in[1].shape);
  for (int64_t e = 0; e < ElementCount(dgate.shape); ++e) {
    const double sigmoid = 1 / (1 + std::exp(-in[1][e]));
    dgate[e] = in[0][e] * in[2][e] * (sigmoid + in[1][e] * sigmoid * (1 - sigmoid));
    dup[e] = in[0][e] * in[1][e] * sigmoid;
  }
  return {dgate, dup};
}

Outputs GeluGradient(const Attributes&, DenseInputs in, const DenseContext&) {
  DenseTensor dx(in[1].shape);
  const double c = std::sqrt(2 / std::numbers::pi);
  for (int64_t e = 0; e < ElementCount(dx.shape); ++e) {
    const double x = in[1][e];
    const double t = std::tanh(c * (x + 0.044715 * x * x * x));
    dx[e] = in[0][e] * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x));
  }
  return {dx};
}

Outputs CrossEntropyGradient(const Attributes& attributes, DenseInputs in, const DenseContext&) {
  DenseTensor dlogits(in[0].shape);
  const int64_t n = in[0].columns();
  for (int64_t e = 0; e < ElementCount(dlogits.shape); ++e) {
    const double target = OwnRow(attributes, in[1][e / n], n) == e % n ? 1 : 0;
    dlogits[e] = attributes.Float("scale") * (std::exp(in[0][e] - in[2][e / n]) - target);
  }
  return {dlogits};
}

}  // namespace

std::map<std::string, DenseOperator, std::less<>> DenseBackwardOperators() {
  return {{"embedding_weight_gradient", EmbeddingWeightGradient},
          {"position_weight_gradient", PositionWeightGradient},
          {"rms_norm_input_gradient", RmsNormInputGradient},
          {"rms_norm_weight_gradient", RmsNormWeightGradient},
          {"layer_norm_input_gradient", LayerNormInputGradient},
          {"layer_norm_weight_gradient", LayerNormWeightGradient},
          {"linear_input_gradient", LinearInputGradient},
          {"linear_weight_gradient", LinearWeightGradient},
          {"bias_gradient", BiasGradient},
          {"attention_gradient", AttentionGradient},
          {"swiglu_gradient", SwigluGradient},
          {"gelu_gradient", GeluGradient},
          {"cross_entropy_gradient", CrossEntropyGradient}};
}

}  // namespace heddle::testing
