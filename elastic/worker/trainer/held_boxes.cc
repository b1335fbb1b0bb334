#include "elastic/worker/trainer/held_boxes.h"

#include <algorithm>

#include "base/bytes.h"

namespace heddle::elastic {

std::vector<program::HeldState> HeldBoxes(const graph::Graph& graph,
                                          const program::Plan& plan,
                                          const wire::Start::Held& held) {
  const program::StateLayout layout = program::LayoutOf(graph, plan);
  std::vector<program::HeldState> out;
  for (size_t rank = 0; rank < layout.size(); ++rank) {
    const std::string& worker = plan.workers[rank];
    if (std::ranges::find(held.workers(), worker) != held.workers().end()) {
      out.push_back({.worker = worker, .boxes = layout[rank]});
    }
  }
  return out;
}

Result<std::vector<program::HeldState>> ReplicatedBoxes(const graph::Graph& graph,
                                                        const wire::Start::Replicas& replicas) {
  HEDDLE_ASSIGN_OR_RETURN(const program::Plan plan, program::PlanFromJson(replicas.plan_json()));
  const program::StateLayout owned = program::OwnedLayout(graph, plan);
  std::vector<program::HeldState> held;
  for (const wire::Start::Replicas::Holder& holder : replicas.holders()) {
    program::HeldState& state = held.emplace_back();
    state.worker = holder.worker();
    for (const int owner : holder.owners()) {
      if (owner < 0 || owner >= static_cast<int>(owned.size())) {
        return InternalError("{} holds the part of rank {} of {}", holder.worker(), owner,
                             owned.size());
      }
      const auto& boxes = owned[static_cast<size_t>(owner)];
      state.boxes.insert(state.boxes.end(), boxes.begin(), boxes.end());
    }
  }
  return held;
}

std::vector<program::StateBox> CommonBoxes(std::span<const program::StateBox> wanted,
                                           std::span<const program::StateBox> held) {
  std::vector<program::StateBox> out;
  for (const program::StateBox& part : wanted) {
    for (const program::StateBox& box : held) {
      if (box.parameter != part.parameter || box.role != part.role) {
        continue;
      }
      if (auto common = Intersect(part.box, box.box)) {
        out.push_back({.parameter = box.parameter, .role = box.role, .box = *std::move(common)});
      }
    }
  }
  return out;
}

Status CopyBoxes(const graph::Graph& graph,
                 const runtime::ParameterState& from,
                 std::span<const program::StateBox> boxes,
                 runtime::ParameterState& to) {
  for (const program::StateBox& box : boxes) {
    if (to.Shares(from, box.parameter)) {
      continue;
    }
    Bytes copy(static_cast<size_t>(ElementCount(box.box.extent) * SizeOf(graph.master_dtype())));
    HEDDLE_RETURN_IF_ERROR(from.Read(box.parameter, box.role, box.box, copy));
    HEDDLE_RETURN_IF_ERROR(to.Write(box.parameter, box.role, box.box, copy));
  }
  return Status::Ok();
}

}  // namespace heddle::elastic
