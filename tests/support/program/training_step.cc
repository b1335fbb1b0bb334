#include "tests/support/program/training_step.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace heddle::testing {
namespace {

bool Near(double a, double b) {
  return std::abs(a - b) <= 1e-9 * (1 + std::abs(b));
}

void Add(const DenseTensor& addend, DenseTensor& sum) {
  for (size_t e = 0; e < addend.values.size(); ++e) {
    sum.values[e] += addend.values[e];
  }
}

/// The first element that differs; empty: none.
std::string Unlike(const DenseTensor& a, const DenseTensor& b) {
  if (a.shape != b.shape) {
    return "another shape";
  }
  for (int64_t e = 0; e < ElementCount(a.shape); ++e) {
    if (!Near(a[e], b[e])) {
      return fmt::format("element {} is {}, expected {}", e, a[e], b[e]);
    }
  }
  return "";
}

}  // namespace

DenseStep RandomStep(const graph::Graph& graph, int microbatches, Random& random) {
  DenseStep step;
  auto inputs = RandomInputs(graph, random);
  for (const graph::Parameter& parameter : graph.parameters) {
    const DenseTensor& master = inputs.at(parameter.compute);
    DenseParameter state{.master = master, .exp_avg = master, .exp_avg_sq = master};
    for (double& value : state.exp_avg.values) {
      value = random.Uniform() - 0.5;
    }
    for (double& value : state.exp_avg_sq.values) {
      value = 0.1 + random.Uniform();
    }
    step.parameters.push_back(std::move(state));
  }
  for (int m = 0; m < microbatches; ++m) {
    step.tokens.push_back(inputs.at(graph.tokens));
    step.targets.push_back(inputs.at(graph.targets));
    inputs = RandomInputs(graph, random);
  }
  step.context = {.seed = random.Next(), .step = random.Between(1, 9), .first_sample = 40};
  return step;
}

void ApplyAdamW(const graph::Graph& graph,
                graph::ParameterId id,
                const DenseStep& step,
                double norm,
                const DenseTensor& gradient,
                DenseParameter& parameter) {
  const graph::AdamW& adamw = graph.optimizer;
  const double clip = adamw.max_gradient_norm > 0 && norm > adamw.max_gradient_norm
                          ? adamw.max_gradient_norm / norm
                          : 1;
  const double decay = graph.parameter(id).decay ? adamw.weight_decay : 0;
  const auto number = static_cast<double>(step.context.step);
  for (size_t e = 0; e < gradient.values.size(); ++e) {
    const double g = gradient.values[e] * clip;
    double& m = parameter.exp_avg.values[e];
    double& v = parameter.exp_avg_sq.values[e];
    m = adamw.beta1 * m + (1 - adamw.beta1) * g;
    v = adamw.beta2 * v + (1 - adamw.beta2) * g * g;
    const double mean = m / (1 - std::pow(adamw.beta1, number));
    const double root = std::sqrt(v / (1 - std::pow(adamw.beta2, number)));
    double& master = parameter.master.values[e];
    master -= step.learning_rate * (decay * master + mean / (root + adamw.epsilon));
  }
}

DenseOutcome RunOneDevice(const graph::Graph& graph, const DenseStep& step) {
  DenseOutcome outcome{.refused = "", .parameters = step.parameters};
  std::vector<DenseTensor> sums;
  for (const DenseParameter& parameter : step.parameters) {
    sums.emplace_back(parameter.master.shape);
  }
  const int64_t batch = graph.tensor(graph.tokens).type.shape[0];
  for (size_t m = 0; m < step.tokens.size(); ++m) {
    std::map<graph::TensorId, DenseTensor> inputs = {{graph.tokens, step.tokens[m]},
                                                     {graph.targets, step.targets[m]}};
    for (size_t p = 0; p < graph.parameters.size(); ++p) {
      inputs[graph.parameters[p].compute] = step.parameters[p].master;
    }
    DenseContext context = step.context;
    context.first_sample += static_cast<int64_t>(m) * batch;
    const std::vector<DenseTensor> tensors = EvaluateGraph(graph, inputs, context);
    outcome.loss += tensors[static_cast<size_t>(graph.loss)][0];
    for (size_t p = 0; p < graph.parameters.size(); ++p) {
      for (const graph::TensorId gradient : graph.parameters[p].gradients) {
        Add(tensors[static_cast<size_t>(gradient)], sums[p]);
      }
    }
  }
  for (const DenseTensor& sum : sums) {
    for (const double value : sum.values) {
      outcome.norm += value * value;
    }
  }
  outcome.norm = std::sqrt(outcome.norm);
  for (size_t p = 0; p < sums.size(); ++p) {
    if (graph.parameters[p].gradients.empty()) {
      continue;
    }
    ApplyAdamW(graph, static_cast<graph::ParameterId>(p), step, outcome.norm, sums[p],
               outcome.parameters[p]);
  }
  return outcome;
}

std::string Difference(const graph::Graph& graph, const DenseOutcome& a, const DenseOutcome& b) {
  if (!a.refused.empty() || !b.refused.empty()) {
    return a.refused + b.refused;
  }
  if (!Near(a.loss, b.loss)) {
    return fmt::format("the loss is {}, expected {}", a.loss, b.loss);
  }
  if (!Near(a.norm, b.norm)) {
    return fmt::format("the norm is {}, expected {}", a.norm, b.norm);
  }
  for (size_t p = 0; p < graph.parameters.size(); ++p) {
    const DenseParameter& mine = a.parameters[p];
    const DenseParameter& other = b.parameters[p];
    for (const auto member :
         {&DenseParameter::master, &DenseParameter::exp_avg, &DenseParameter::exp_avg_sq}) {
      if (const std::string why = Unlike(mine.*member, other.*member); !why.empty()) {
        return fmt::format("{}: {}", graph.parameters[p].name, why);
      }
    }
  }
  return "";
}

}  // namespace heddle::testing
