#include "engine/runtime/parameter_state.h"

#include <algorithm>
#include <span>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/hash.h"
#include "engine/graph/initialize.h"
#include "engine/runtime/device/tensor.h"
#include "engine/runtime/parameter_tensors.h"

namespace heddle::runtime {
namespace {

const at::Tensor& TensorOf(const ParameterState::Held& tensors, program::StateRole role) {
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

/// graph::InitializeParameter on libtorch's threads: 30 ns an element are half a minute for a
/// billion. Each element depends on its place alone, so that the bits do not depend on threads.
void InitializeRows(const graph::Parameter& parameter,
                    uint64_t seed,
                    const Box& box,
                    std::span<float> out) {
  constexpr int64_t kGrainElements = 1 << 14;
  const int64_t rows = box.extent.empty() ? 1 : box.extent[0];
  const int64_t width = rows == 0 ? 0 : std::ssize(out) / rows;
  if (box.extent.empty() || width == 0) {
    return graph::InitializeParameter(parameter, seed, box, out);
  }
  at::parallel_for(
      0, rows, std::max<int64_t>(1, kGrainElements / width), [&](int64_t begin, int64_t end) {
        Box part = box;
        part.offset[0] += begin;
        part.extent[0] = end - begin;
        graph::InitializeParameter(parameter, seed, part,
                                   out.subspan(static_cast<size_t>(begin * width),
                                               static_cast<size_t>((end - begin) * width)));
      });
}

}  // namespace

ParameterState::ParameterState(const graph::Graph& graph, Device& device)
    : graph_(&graph),
      device_(&device),
      held_(graph.parameters.size()) {}
ParameterState::~ParameterState() = default;
ParameterState::ParameterState(ParameterState&&) noexcept = default;
ParameterState& ParameterState::operator=(ParameterState&&) noexcept = default;

void ParameterState::Hold(const std::vector<graph::ParameterId>& parameters,
                          const std::map<graph::ParameterId, Box>& cut) {
  for (size_t i = 0; i < held_.size(); ++i) {
    const auto id = static_cast<graph::ParameterId>(i);
    const graph::Parameter& parameter = graph_->parameters[i];
    const Box whole = WholeBox(parameter.shape);
    const auto found = cut.find(id);
    const Box& box = found == cut.end() ? whole : found->second;
    if (!std::ranges::binary_search(parameters, id)) {
      held_[i].reset();
    } else if (held_[i] == nullptr || held_[i]->box != box) {
      HEDDLE_CHECK(Contains(whole, box), "{} of '{}', which is {}", ToString(box), parameter.name,
                   ToString(parameter.shape));
      const graph::TensorType master{.dtype = graph_->master_dtype(), .shape = box.extent};
      const graph::TensorType compute{.dtype = graph_->tensor(parameter.compute).type.dtype,
                                      .shape = box.extent};
      auto held = std::make_shared<Held>();
      held->box = box;
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
      held_[i] = std::move(held);
    }
  }
}

void ParameterState::Hold(const program::Program& program) {
  std::map<graph::ParameterId, Box> cut;
  for (const program::Piece& piece : program.pieces) {
    if (!cut.contains(piece.parameter)) {
      cut[piece.parameter] = HeldBox(program, *graph_, piece.parameter);
    }
  }
  Hold(program.parameters, cut);
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

const Box& ParameterState::BoxOf(graph::ParameterId parameter) const {
  return held(parameter).box;
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
    const Box& box = held_[id]->box;
    const at::Tensor values = device_->HostBuffer({.dtype = DType::kF32, .shape = box.extent});
    InitializeRows(graph_->parameters[id], seed, box,
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

ParameterState::Held ParameterState::Part(graph::ParameterId parameter, const Box& box) const {
  const Held& whole = held(parameter);
  HEDDLE_CHECK(Contains(whole.box, box), "{} of parameter {}, of which {} is held", ToString(box),
               parameter, ToString(whole.box));
  const auto part = [&](at::Tensor tensor) {
    for (size_t d = 0; d < box.extent.size(); ++d) {
      tensor = tensor.narrow(static_cast<int64_t>(d), box.offset[d] - whole.box.offset[d],
                             box.extent[d]);
    }
    return tensor;
  };
  return {.box = box,
          .master = part(whole.master),
          .exp_avg = part(whole.exp_avg),
          .exp_avg_sq = part(whole.exp_avg_sq),
          .compute = part(whole.compute)};
}

Status ParameterState::Read(graph::ParameterId parameter,
                            program::StateRole role,
                            const Box& box,
                            std::span<std::byte> out) const {
  const at::Tensor target = HostView(out, {.dtype = graph_->master_dtype(), .shape = box.extent});
  return device_->DownloadInto(TensorOf(Part(parameter, box), role), target)
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
  device_->Prepare([target = TensorOf(Part(parameter, box), role),
                    value = copied.tensor]() mutable { target.copy_(value); });
  return copied.mark.Wait(After(kLongestWait));
}

std::span<std::byte> ParameterState::InPlace(graph::ParameterId parameter,
                                             program::StateRole role,
                                             const Box& box) const {
  if (!device_->is_host() || box != BoxOf(parameter)) {
    return {};
  }
  return BytesOf(TensorOf(held(parameter), role));
}

void ParameterState::Refresh() {
  for (auto& held : held_) {
    if (held != nullptr && !held->compute.is_same(held->master)) {
      device_->Prepare(
          [copy = held->compute, master = held->master]() mutable { copy.copy_(master); });
    }
  }
}

Result<uint64_t> ParameterState::Digest(graph::ParameterId parameter, const Box& box) const {
  Bytes copy;
  uint64_t digest = 0;
  for (const program::StateRole role : program::kStateRoles) {
    std::span<const std::byte> bytes = InPlace(parameter, role, box);
    if (bytes.empty()) {
      copy.resize(static_cast<size_t>(ElementCount(box.extent) * SizeOf(graph_->master_dtype())));
      HEDDLE_RETURN_IF_ERROR(Read(parameter, role, box, copy));
      bytes = copy;
    }
    digest = Hash64(bytes, digest);
  }
  return digest;
}

}  // namespace heddle::runtime
