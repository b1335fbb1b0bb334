#include <algorithm>
#include <cmath>
#include <numbers>

#include "tests/support/graph/dense_operators.h"

namespace heddle::testing {
namespace {

using graph::Attributes;
using Outputs = std::vector<DenseTensor>;

Shape WithoutLast(const Shape& shape) {
  return {shape.begin(), shape.end() - 1};
}

double LogSumExp(std::span<const double> values) {
  const double most = *std::ranges::max_element(values);
  double total = 0;
  for (const double value : values) {
    total += std::exp(value - most);
  }
  return most + std::log(total);
}

Outputs Embedding(const Attributes& attributes, DenseInputs in, const DenseContext&) {
  const int64_t features = in[1].shape[1];
  DenseTensor y({in[0].shape[0], in[0].shape[1], features});
  for (int64_t i = 0; i < ElementCount(in[0].shape); ++i) {
    const int64_t row = OwnRow(attributes, in[0][i], in[1].shape[0]);
    for (int64_t j = 0; j < features; ++j) {
      y[i * features + j] = row < 0 ? -0.0 : in[1][row * features + j];
    }
  }
  return {y};
}

Outputs AddPosition(const Attributes& attributes, DenseInputs in, const DenseContext&) {
  DenseTensor y = in[0];
  const int64_t sample = in[0].shape[1] * in[0].shape[2];
  const int64_t first = First(attributes, "first_position") * in[0].shape[2];
  for (int64_t e = 0; e < ElementCount(y.shape); ++e) {
    y[e] += in[1][first + e % sample];
  }
  return {y};
}

Outputs RmsNorm(const Attributes& attributes, DenseInputs in, const DenseContext&) {
  const DenseTensor& x = in[0];
  DenseTensor y(x.shape);
  DenseTensor rstd(WithoutLast(x.shape));
  const int64_t n = x.columns();
  for (int64_t r = 0; r < x.rows(); ++r) {
    double squares = 0;
    for (int64_t j = 0; j < n; ++j) {
      squares += x[r * n + j] * x[r * n + j];
    }
    rstd[r] = 1 / std::sqrt(squares / static_cast<double>(n) + attributes.Float("epsilon"));
    for (int64_t j = 0; j < n; ++j) {
      y[r * n + j] = x[r * n + j] * rstd[r] * in[1][j];
    }
  }
  return {y, rstd};
}

Outputs LayerNorm(const Attributes& attributes, DenseInputs in, const DenseContext&) {
  const DenseTensor& x = in[0];
  DenseTensor y(x.shape);
  DenseTensor mean(WithoutLast(x.shape));
  DenseTensor rstd(WithoutLast(x.shape));
  const int64_t n = x.columns();
  for (int64_t r = 0; r < x.rows(); ++r) {
    for (int64_t j = 0; j < n; ++j) {
      mean[r] += x[r * n + j] / static_cast<double>(n);
    }
    double variance = 0;
    for (int64_t j = 0; j < n; ++j) {
      variance += std::pow(x[r * n + j] - mean[r], 2) / static_cast<double>(n);
    }
    rstd[r] = 1 / std::sqrt(variance + attributes.Float("epsilon"));
    for (int64_t j = 0; j < n; ++j) {
      y[r * n + j] = (x[r * n + j] - mean[r]) * rstd[r] * in[1][j] + in[2][j];
    }
  }
  return {y, mean, rstd};
}

Outputs Linear(const Attributes&, DenseInputs in, const DenseContext&) {
  const int64_t n = in[1].shape[0];
  const int64_t k = in[1].shape[1];
  Shape shape = in[0].shape;
  shape.back() = n;
  DenseTensor y(shape);
  for (int64_t r = 0; r < in[0].rows(); ++r) {
    for (int64_t i = 0; i < n; ++i) {
      double sum = in.size() == 3 ? in[2][i] : 0;
      for (int64_t j = 0; j < k; ++j) {
        sum += in[0][r * k + j] * in[1][i * k + j];
      }
      y[r * n + i] = sum;
    }
  }
  return {y};
}

Outputs Rope(const Attributes& attributes, DenseInputs in, const DenseContext&) {
  const DenseTensor& x = in[0];
  DenseTensor y(x.shape);
  const int64_t d = attributes.Int("head_dim");
  const double sign = attributes.Int("inverse") == 1 ? -1 : 1;
  for (int64_t r = 0; r < x.rows(); ++r) {
    const auto position = static_cast<double>(First(attributes, "first_position") + r % x.shape[1]);
    for (int64_t head = 0; head < x.columns() / d; ++head) {
      for (int64_t i = 0; i < d / 2; ++i) {
        const double angle = sign * position /
                             std::pow(attributes.Float("theta"),
                                      2.0 * static_cast<double>(i) / static_cast<double>(d));
        const int64_t first = r * x.columns() + head * d + i;
        const int64_t second = first + d / 2;
        y[first] = x[first] * std::cos(angle) - x[second] * std::sin(angle);
        y[second] = x[second] * std::cos(angle) + x[first] * std::sin(angle);
      }
    }
  }
  return {y};
}

Outputs Attention(const Attributes& attributes, DenseInputs in, const DenseContext&) {
  const int64_t heads = attributes.Int("heads");
  const int64_t length = in[0].shape[1];
  const int64_t d = in[0].shape[2] / heads;
  const int64_t q_row = in[0].shape[2];
  const int64_t kv_row = in[1].shape[2];
  DenseTensor o(in[0].shape);
  DenseTensor lse({in[0].shape[0], heads, length});
  for (int64_t e = 0; e < ElementCount(lse.shape); ++e) {
    const int64_t t = e % length;
    const int64_t head = e / length % heads;
    const int64_t b = e / length / heads;
    const int64_t q = (b * length + t) * q_row + head * d;
    std::vector<double> scores;
    for (int64_t s = 0; s <= t; ++s) {
      double dot = 0;
      for (int64_t j = 0; j < d; ++j) {
        dot += in[0][q + j] * in[1][(b * length + s) * kv_row + KvHead(attributes, head) * d + j];
      }
      scores.push_back(dot / std::sqrt(static_cast<double>(d)));
    }
    lse[e] = LogSumExp(scores);
    for (int64_t s = 0; s <= t; ++s) {
      for (int64_t j = 0; j < d; ++j) {
        o[q + j] += std::exp(scores[static_cast<size_t>(s)] - lse[e]) *
                    in[2][(b * length + s) * kv_row + KvHead(attributes, head) * d + j];
      }
    }
  }
  return {o, lse};
}

Outputs Swiglu(const Attributes&, DenseInputs in, const DenseContext&) {
  DenseTensor y(in[0].shape);
  for (int64_t e = 0; e < ElementCount(y.shape); ++e) {
    y[e] = in[0][e] / (1 + std::exp(-in[0][e])) * in[1][e];
  }
  return {y};
}

Outputs Gelu(const Attributes&, DenseInputs in, const DenseContext&) {
  DenseTensor y(in[0].shape);
  for (int64_t e = 0; e < ElementCount(y.shape); ++e) {
    const double x = in[0][e];
    y[e] = 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  }
  return {y};
}

Outputs Add(const Attributes&, DenseInputs in, const DenseContext&) {
  DenseTensor y = in[0];
  for (int64_t e = 0; e < ElementCount(y.shape); ++e) {
    y[e] += in[1][e];
  }
  return {y};
}

Outputs AddBias(const Attributes&, DenseInputs in, const DenseContext&) {
  DenseTensor y = in[0];
  for (int64_t e = 0; e < ElementCount(y.shape); ++e) {
    y[e] += in[1][e % y.columns()];
  }
  return {y};
}

/// The mask is a function of the same coordinates as the kernel's, but not the same function.
Outputs Dropout(const Attributes& attributes, DenseInputs in, const DenseContext& context) {
  DenseTensor y = in[0];
  const int64_t sample_size = y.shape[1] * y.shape[2];
  const double p = attributes.Float("p");
  for (int64_t e = 0; e < ElementCount(y.shape); ++e) {
    const auto sample = static_cast<uint64_t>(context.first_sample + e / sample_size);
    const int64_t position = First(attributes, "first_position") + e % sample_size / y.columns();
    const auto element =
        static_cast<uint64_t>(position * attributes.FindInt("features").value_or(y.columns()) +
                              First(attributes, "first_feature") + e % y.columns());
    const uint64_t key = context.seed * 1000003 +
                         static_cast<uint64_t>(context.step * 1009 + attributes.Int("site"));
    const double uniform = Philox(key, sample, element)[0] * 0x1.0p-32;
    y[e] = uniform < p ? 0 : y[e] / (1 - p);
  }
  return {y};
}

Outputs CrossEntropy(const Attributes& attributes, DenseInputs in, const DenseContext&) {
  const int64_t n = in[0].columns();
  DenseTensor loss{Shape{}};
  DenseTensor lse(in[1].shape);
  for (int64_t r = 0; r < in[0].rows(); ++r) {
    lse[r] = LogSumExp(
        std::span(in[0].values).subspan(static_cast<size_t>(r * n), static_cast<size_t>(n)));
    loss[0] += attributes.Float("scale") * (lse[r] - in[0][r * n + static_cast<int64_t>(in[1][r])]);
  }
  return {loss, lse};
}

Outputs RowMax(const Attributes&, DenseInputs in, const DenseContext&) {
  DenseTensor most(WithoutLast(in[0].shape));
  const int64_t n = in[0].columns();
  for (int64_t r = 0; r < in[0].rows(); ++r) {
    most[r] = *std::ranges::max_element(
        std::span(in[0].values).subspan(static_cast<size_t>(r * n), static_cast<size_t>(n)));
  }
  return {most};
}

Outputs ExpSum(const Attributes& attributes, DenseInputs in, const DenseContext&) {
  const int64_t n = in[0].columns();
  DenseTensor sums({in[0].shape[0], in[0].shape[1], 2});
  for (int64_t r = 0; r < in[0].rows(); ++r) {
    for (int64_t j = 0; j < n; ++j) {
      sums[2 * r] += std::exp(in[0][r * n + j] - in[2][r]);
    }
    const int64_t target = OwnRow(attributes, in[1][r], n);
    sums[2 * r + 1] = target < 0 ? -0.0 : in[0][r * n + target];
  }
  return {sums};
}

Outputs CrossEntropyOfSums(const Attributes& attributes, DenseInputs in, const DenseContext&) {
  DenseTensor loss{Shape{}};
  DenseTensor lse(in[0].shape);
  for (int64_t r = 0; r < ElementCount(lse.shape); ++r) {
    lse[r] = in[0][r] + std::log(in[1][2 * r]);
    loss[0] += attributes.Float("scale") * (lse[r] - in[1][2 * r + 1]);
  }
  return {loss, lse};
}

}  // namespace

std::map<std::string, DenseOperator, std::less<>> DenseForwardOperators() {
  return {{"embedding", Embedding}, {"add_position", AddPosition},
          {"rms_norm", RmsNorm},    {"layer_norm", LayerNorm},
          {"linear", Linear},       {"rope", Rope},
          {"attention", Attention}, {"swiglu", Swiglu},
          {"gelu", Gelu},           {"add", Add},
          {"dropout", Dropout},     {"cross_entropy", CrossEntropy},
          {"add_bias", AddBias},    {"row_max", RowMax},
          {"exp_sum", ExpSum},      {"cross_entropy_of_sums", CrossEntropyOfSums}};
}

}  // namespace heddle::testing
