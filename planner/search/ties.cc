#include "planner/search/ties.h"

#include <algorithm>
#include <tuple>

namespace heddle::planner {
namespace {

using program::Pipeline;
using program::Plan;
using program::Stage;

// The plan as a sequence of numbers that orders it among others.
std::vector<int> OrderOf(const Plan& plan) {
  std::vector<int> order = {static_cast<int>(plan.pipelines.size())};
  for (const Pipeline& pipeline : plan.pipelines) {
    order.push_back(static_cast<int>(pipeline.stages.size()));
    order.push_back(pipeline.first_microbatch);
    order.push_back(pipeline.microbatches);
    for (const Stage& stage : pipeline.stages) {
      order.insert(order.end(), {stage.worker(), stage.first_segment, stage.last_segment,
                                 stage.recompute ? 1 : 0, stage.ahead});
    }
  }
  return order;
}

}  // namespace

int64_t MessagesOf(const graph::Graph& graph, const Plan& plan) {
  int64_t messages = 0;
  for (const Pipeline& pipeline : plan.pipelines) {
    // Activations forwards, their gradients backwards.
    messages += 2 * (std::ssize(pipeline.stages) - 1) * pipeline.microbatches;
  }
  for (const std::vector<int>& holders : program::ParameterHolders(graph, plan)) {
    messages += holders.size() > 1 ? std::ssize(holders) : 0;
  }
  return messages;
}

size_t Preferred(const graph::Graph& graph,
                 const std::vector<ScoredPlan>& plans,
                 double tie,
                 double bound,
                 const Plan* in_force) {
  const double fewest = std::ranges::min(plans, {}, &ScoredPlan::seconds).seconds;
  const double most = std::max(fewest, std::min((1 + tie) * fewest, bound));
  const auto rank = [&](const Plan& plan) {
    const bool stays = in_force != nullptr && plan.pipelines == in_force->pipelines;
    return std::tuple(MessagesOf(graph, plan), stays ? 0 : 1, OrderOf(plan));
  };
  size_t best = plans.size();
  for (size_t i = 0; i < plans.size(); ++i) {
    if (plans[i].seconds <= most &&
        (best == plans.size() || rank(plans[i].plan) < rank(plans[best].plan))) {
      best = i;
    }
  }
  return best;
}

}  // namespace heddle::planner
