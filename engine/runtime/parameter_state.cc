#include "engine/runtime/parameter_state.h"

#include <algorithm>
#include <exception>
#include <span>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/hash.h"
#include "engine/graph/initialize.h"
#include "engine/runtime/device/guarded.h"
#include "engine/runtime/device/tensor.h"
#include "engine/runtime/parameter_tensors.h"

namespace heddle::runtime {
namespace {

const at::Tensor& TensorOf(const ParameterState::Kept& tensors, program::StateRole role) {
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

/// The elements of `box` of a tensor that has those of `whole`.
at::Tensor ViewOf(at::Tensor tensor, const Box& whole, const Box& box) {
  for (size_t d = 0; d < box.extent.size(); ++d) {
    tensor = tensor.narrow(static_cast<int64_t>(d), box.offset[d] - whole.offset[d], box.extent[d]);
  }
  return tensor;
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
      held_(graph.parameters.size()),
      gathered_(graph.parameters.size(), false) {}
ParameterState::~ParameterState() = default;
ParameterState::ParameterState(ParameterState&&) noexcept = default;
ParameterState& ParameterState::operator=(ParameterState&&) noexcept = default;

Status ParameterState::Hold(const std::vector<graph::ParameterId>& parameters, const Parts& parts) {
  gathered_.assign(gathered_.size(), false);
  for (size_t i = 0; i < held_.size(); ++i) {
    const auto id = static_cast<graph::ParameterId>(i);
    const auto cut = parts.held.find(id);
    const Box box = cut == parts.held.end() ? WholeBox(graph_->parameters[i].shape) : cut->second;
    const auto kept = parts.kept.find(id);
    const std::vector<Box> boxes = kept == parts.kept.end() ? std::vector{box} : kept->second;
    if (!std::ranges::binary_search(parameters, id)) {
      held_[i].reset();
    } else if (held_[i] == nullptr || held_[i]->box != box || KeptOf(id) != boxes) {
      try {
        held_[i] = Allocate(id, box, boxes);
      } catch (const std::exception& error) {  // libtorch's, or std::bad_alloc.
        const std::string_view what = error.what();
        return ResourceExhaustedError("no memory for {} of '{}': {}", ToString(box),
                                      graph_->parameters[i].name, what.substr(0, what.find('\n')));
      }
    }
  }
  return Status::Ok();
}

std::shared_ptr<ParameterState::Held> ParameterState::Allocate(graph::ParameterId id,
                                                               const Box& box,
                                                               const std::vector<Box>& kept) {
  const graph::Parameter& parameter = graph_->parameter(id);
  HEDDLE_CHECK(Contains(WholeBox(parameter.shape), box), "{} of '{}', which is {}", ToString(box),
               parameter.name, ToString(parameter.shape));
  const DType master = graph_->master_dtype();
  const DType compute = graph_->tensor(parameter.compute).type.dtype;
  auto held = std::make_shared<Held>();
  held->box = box;
  held->compute = device_->Empty({.dtype = compute, .shape = box.extent});
  std::vector<at::Tensor> zeros = {held->compute};
  for (const Box& part : kept) {
    HEDDLE_CHECK(Contains(box, part), "{} of '{}', of which {} is held", ToString(part),
                 parameter.name, ToString(box));
    const auto make = [&] {
      return zeros.emplace_back(device_->Empty({.dtype = master, .shape = part.extent}));
    };
    Kept tensors{.box = part,
                 .master = {},
                 .exp_avg = make(),
                 .exp_avg_sq = make(),
                 .compute = ViewOf(held->compute, box, part)};
    tensors.master = compute == master ? tensors.compute : make();
    held->kept.push_back(std::move(tensors));
  }
  device_->Prepare([zeros = std::move(zeros)] {
    for (const at::Tensor& tensor : zeros) {
      tensor.zero_();
    }
  });
  return held;
}

Status ParameterState::Hold(const program::Program& program) {
  Parts parts;
  for (const program::Piece& piece : program.pieces) {
    if (!parts.held.contains(piece.parameter)) {
      parts.held[piece.parameter] = program::HeldBox(program, *graph_, piece.parameter);
    }
    if (piece.kept) {
      parts.kept[piece.parameter];
    }
  }
  for (const program::Piece& piece : program.pieces) {
    const auto kept = parts.kept.find(piece.parameter);
    if (kept != parts.kept.end() && ElementCount(program::KeptBox(piece).extent) > 0) {
      kept->second.push_back(program::KeptBox(piece));
    }
  }
  return Hold(program.parameters, parts);
}

void ParameterState::Share(const ParameterState& other,
                           const std::vector<graph::ParameterId>& wanted) {
  gathered_.assign(gathered_.size(), false);
  for (const graph::ParameterId id : wanted) {
    held_[static_cast<size_t>(id)] = other.held_[static_cast<size_t>(id)];
  }
}

bool ParameterState::Shares(const ParameterState& other, graph::ParameterId parameter) const {
  return &held(parameter) == &other.held(parameter);
}

bool ParameterState::Holds(graph::ParameterId parameter) const {
  return held_.at(static_cast<size_t>(parameter)) != nullptr;
}

const Box& ParameterState::BoxOf(graph::ParameterId parameter) const {
  return held(parameter).box;
}

std::vector<Box> ParameterState::KeptOf(graph::ParameterId parameter) const {
  std::vector<Box> boxes;
  for (const Kept& kept : held(parameter).kept) {
    boxes.push_back(kept.box);
  }
  return boxes;
}

bool ParameterState::IsGathered(graph::ParameterId parameter) const {
  return gathered_.at(static_cast<size_t>(parameter));
}

void ParameterState::SetGathered(graph::ParameterId parameter, bool gathered) {
  gathered_.at(static_cast<size_t>(parameter)) = gathered;
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

Status ParameterState::Initialize(uint64_t seed) {
  for (size_t id = 0; id < held_.size(); ++id) {
    for (const Kept& kept : held_[id] == nullptr ? std::vector<Kept>() : held_[id]->kept) {
      const at::Tensor values =
          device_->HostBuffer({.dtype = DType::kF32, .shape = kept.box.extent});
      InitializeRows(graph_->parameters[id], seed, kept.box,
                     {static_cast<float*>(values.data_ptr()), static_cast<size_t>(values.numel())});
      HEDDLE_ASSIGN_OR_RETURN(const Copied copied, Uploaded(values));
      device_->Prepare([kept, initial = copied.tensor]() mutable {
        kept.master.copy_(initial);
        kept.exp_avg.zero_();
        kept.exp_avg_sq.zero_();
      });
    }
  }
  Refresh();
  return Status::Ok();
}

// What compute sees from now on.
Result<Copied> ParameterState::Uploaded(const at::Tensor& host) {
  HEDDLE_ASSIGN_OR_RETURN(Copied copied,
                          Guarded([&] { return Result<Copied>(device_->Upload(host)); }));
  device_->Await(copied.mark);
  return copied;
}

ParameterState::Kept ParameterState::Part(graph::ParameterId parameter, const Box& box) const {
  for (const Kept& kept : held(parameter).kept) {
    if (Contains(kept.box, box)) {
      const auto part = [&](const at::Tensor& tensor) { return ViewOf(tensor, kept.box, box); };
      return {.box = box,
              .master = part(kept.master),
              .exp_avg = part(kept.exp_avg),
              .exp_avg_sq = part(kept.exp_avg_sq),
              .compute = part(kept.compute)};
    }
  }
  HEDDLE_CHECK(false, "{} of parameter {} is not kept", ToString(box), parameter);
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
  HEDDLE_ASSIGN_OR_RETURN(
      const Copied copied,
      Uploaded(HostView(bytes, {.dtype = graph_->master_dtype(), .shape = box.extent})));
  device_->Prepare([target = TensorOf(Part(parameter, box), role),
                    value = copied.tensor]() mutable { target.copy_(value); });
  return copied.mark.Wait(After(kLongestWait));
}

std::span<std::byte> ParameterState::InPlace(graph::ParameterId parameter,
                                             program::StateRole role,
                                             const Box& box) const {
  for (const Kept& kept : held(parameter).kept) {
    const at::Tensor& tensor = TensorOf(kept, role);
    if (device_->is_host() && kept.box == box && tensor.is_contiguous()) {
      return BytesOf(tensor);
    }
  }
  return {};
}

void ParameterState::Refresh() {
  gathered_.assign(gathered_.size(), false);
  for (const auto& held : held_) {
    for (const Kept& kept : held == nullptr ? std::vector<Kept>() : held->kept) {
      if (kept.compute.data_ptr() != kept.master.data_ptr()) {
        device_->Prepare(
            [copy = kept.compute, master = kept.master]() mutable { copy.copy_(master); });
      }
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
