#include "engine/runtime/parameter_state.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/hash.h"
#include "engine/graph/initialize.h"
#include "engine/runtime/device/tensor.h"
#include "engine/runtime/parameter_tensors.h"

namespace heddle::runtime {
namespace {

/// The part as a view.
at::Tensor PartOf(const at::Tensor& tensor, const Box& box) {
  at::Tensor part = tensor;
  for (size_t d = 0; d < box.extent.size(); ++d) {
    part = part.narrow(static_cast<int64_t>(d), box.offset[d], box.extent[d]);
  }
  return part;
}

}  // namespace

ParameterState::ParameterState(const graph::Graph& graph, Device& device)
    : graph_(&graph),
      device_(&device),
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
      held->master = device_->Empty(master);
      held->exp_avg = device_->Empty(master);
      held->exp_avg_sq = device_->Empty(master);
      std::vector<at::Tensor> zeros = {held->master, held->exp_avg, held->exp_avg_sq};
      if (compute.dtype == master.dtype) {
        held->compute = held->master;
      } else {
        zeros.push_back(held->compute = device_->Empty(compute));
      }
      device_->Prepare([zeros = std::move(zeros)] {
        for (const at::Tensor& tensor : zeros) {
          tensor.zero_();
        }
      });
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

ParameterState::Held& ParameterState::held(graph::ParameterId parameter) const {
  const auto& held = held_.at(static_cast<size_t>(parameter));
  HEDDLE_CHECK(held != nullptr, "parameter {} is not held", parameter);
  return *held;
}

void ParameterState::Initialize(uint64_t seed) {
  for (size_t id = 0; id < held_.size(); ++id) {
    if (held_[id] == nullptr) {
      continue;
    }
    const graph::Parameter& parameter = graph_->parameters[id];
    const at::Tensor values = device_->HostBuffer({.dtype = DType::kF32, .shape = parameter.shape});
    graph::InitializeParameter(
        parameter, seed, WholeBox(parameter.shape),
        {static_cast<float*>(values.data_ptr()), static_cast<size_t>(values.numel())});
    const Copied copied = device_->Upload(values);
    device_->Await(copied.mark);
    device_->Prepare([held = *held_[id], initial = copied.tensor]() mutable {
      held.master.copy_(initial);
      held.exp_avg.zero_();
      held.exp_avg_sq.zero_();
    });
  }
  Refresh();
}

const at::Tensor& ParameterState::TensorOf(graph::ParameterId parameter,
                                           program::StateRole role) const {
  const Held& tensors = held(parameter);
  switch (role) {
    case program::StateRole::kMaster:
      return tensors.master;
    case program::StateRole::kExpAvg:
      return tensors.exp_avg;
    case program::StateRole::kExpAvgSq:
      return tensors.exp_avg_sq;
  }
  HEDDLE_CHECK(false, "role {}", static_cast<int>(role));
}

Status ParameterState::Read(graph::ParameterId parameter,
                            program::StateRole role,
                            const Box& box,
                            std::span<std::byte> out) const {
  const at::Tensor target = HostView(out, {.dtype = graph_->master_dtype(), .shape = box.extent});
  return device_->DownloadInto(PartOf(TensorOf(parameter, role), box), target)
      .Wait(After(kLongestWait));
}

Status ParameterState::Write(graph::ParameterId parameter,
                             program::StateRole role,
                             const Box& box,
                             std::span<const std::byte> in) {
  if (in.data() == InPlace(parameter, role, box).data()) {
    return Status::Ok();
  }
  // Nothing is written through it.
  const std::span<std::byte> bytes(const_cast<std::byte*>(in.data()), in.size());
  const Copied copied =
      device_->Upload(HostView(bytes, {.dtype = graph_->master_dtype(), .shape = box.extent}));
  device_->Await(copied.mark);
  device_->Prepare([target = PartOf(TensorOf(parameter, role), box),
                    value = copied.tensor]() mutable { target.copy_(value); });
  return copied.mark.Wait(After(kLongestWait));
}

std::span<std::byte> ParameterState::InPlace(graph::ParameterId parameter,
                                             program::StateRole role,
                                             const Box& box) const {
  if (!device_->is_host() || box != WholeBox(graph_->parameter(parameter).shape)) {
    return {};
  }
  return BytesOf(TensorOf(parameter, role));
}

void ParameterState::Refresh() {
  for (auto& held : held_) {
    if (held != nullptr && !held->compute.is_same(held->master)) {
      device_->Prepare(
          [copy = held->compute, master = held->master]() mutable { copy.copy_(master); });
    }
  }
}

Result<uint64_t> ParameterState::Digest(graph::ParameterId parameter) const {
  const Box whole = WholeBox(graph_->parameter(parameter).shape);
  Bytes copy;
  uint64_t digest = 0;
  for (const program::StateRole role : program::kStateRoles) {
    std::span<const std::byte> bytes = InPlace(parameter, role, whole);
    if (bytes.empty()) {
      copy.resize(static_cast<size_t>(ElementCount(whole.extent) * SizeOf(graph_->master_dtype())));
      HEDDLE_RETURN_IF_ERROR(Read(parameter, role, whole, copy));
      bytes = copy;
    }
    digest = Hash64(bytes, digest);
  }
  return digest;
}

}  // namespace heddle::runtime
