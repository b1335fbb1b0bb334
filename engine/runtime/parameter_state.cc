#include "engine/runtime/parameter_state.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "base/check.h"
#include "base/hash.h"
#include "engine/graph/initialize.h"
#include "engine/runtime/parameter_tensors.h"
#include "engine/runtime/tensor.h"

namespace heddle::runtime {

ParameterState::ParameterState(const graph::Graph& graph)
    : graph_(&graph),
      held_(graph.parameters.size()) {}
ParameterState::~ParameterState() = default;
ParameterState::ParameterState(ParameterState&&) noexcept = default;
ParameterState& ParameterState::operator=(ParameterState&&) noexcept = default;

void ParameterState::Hold(const std::vector<graph::ParameterId>& parameters) {
  for (size_t id = 0; id < held_.size(); ++id) {
    const bool wanted = std::binary_search(parameters.begin(), parameters.end(),
                                           static_cast<graph::ParameterId>(id));
    if (!wanted) {
      held_[id].reset();
    } else if (held_[id] == nullptr) {
      const graph::Parameter& parameter = graph_->parameters[id];
      const graph::TensorType master{.dtype = graph_->master_dtype(), .shape = parameter.shape};
      const graph::TensorType& compute = graph_->tensor(parameter.compute).type;
      auto held = std::make_shared<Held>();
      held->master = EmptyTensor(master).zero_();
      held->exp_avg = EmptyTensor(master).zero_();
      held->exp_avg_sq = EmptyTensor(master).zero_();
      held->compute = compute.dtype == master.dtype ? held->master : EmptyTensor(compute).zero_();
      held_[id] = std::move(held);
    }
  }
}

void ParameterState::Share(const ParameterState& other,
                           const std::vector<graph::ParameterId>& wanted) {
  for (const graph::ParameterId id : wanted) {
    held_[static_cast<size_t>(id)] = other.held_[static_cast<size_t>(id)];
  }
}

bool ParameterState::Holds(graph::ParameterId parameter) const {
  return held_.at(static_cast<size_t>(parameter)) != nullptr;
}

std::vector<graph::ParameterId> ParameterState::parameters() const {
  std::vector<graph::ParameterId> out;
  for (size_t id = 0; id < held_.size(); ++id) {
    if (held_[id] != nullptr) {
      out.push_back(static_cast<graph::ParameterId>(id));
    }
  }
  return out;
}

ParameterState::Held& ParameterState::held(graph::ParameterId parameter) {
  auto& held = held_.at(static_cast<size_t>(parameter));
  HEDDLE_CHECK(held != nullptr, "parameter {} is not held", parameter);
  return *held;
}

void ParameterState::Initialize(uint64_t seed) {
  for (size_t id = 0; id < held_.size(); ++id) {
    if (held_[id] == nullptr) {
      continue;
    }
    const graph::Parameter& parameter = graph_->parameters[id];
    std::vector<float> values(static_cast<size_t>(ElementCount(parameter.shape)));
    graph::InitializeParameter(parameter, seed, WholeBox(parameter.shape), values);
    Held& held = *held_[id];
    held.master.copy_(
        at::from_blob(values.data(), parameter.shape, at::TensorOptions().dtype(at::kFloat)));
    held.exp_avg.zero_();
    held.exp_avg_sq.zero_();
  }
  Refresh();
}

std::span<std::byte> ParameterState::BytesOf(graph::ParameterId parameter,
                                             program::StateRole role) {
  Held& tensors = held(parameter);
  switch (role) {
    case program::StateRole::kMaster:
      return runtime::BytesOf(tensors.master);
    case program::StateRole::kExpAvg:
      return runtime::BytesOf(tensors.exp_avg);
    case program::StateRole::kExpAvgSq:
      return runtime::BytesOf(tensors.exp_avg_sq);
  }
  return {};
}

void ParameterState::Refresh() {
  for (auto& held : held_) {
    if (held != nullptr && !held->compute.is_same(held->master)) {
      held->compute.copy_(held->master);
    }
  }
}

uint64_t ParameterState::Digest(graph::ParameterId parameter) const {
  const Held& tensors = *held_.at(static_cast<size_t>(parameter));
  uint64_t digest = 0;
  for (const at::Tensor* tensor : {&tensors.master, &tensors.exp_avg, &tensors.exp_avg_sq}) {
    digest = Hash64(std::span<const std::byte>(runtime::BytesOf(*tensor)), digest);
  }
  return digest;
}

}  // namespace heddle::runtime
