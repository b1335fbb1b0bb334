#include "planner/predictor/estimate.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "base/tensor/reduction_tree.h"
#include "planner/predictor/exchange_cost.h"

namespace heddle::planner {
namespace {

using program::Pipeline;
using program::Plan;
using program::Stage;

constexpr size_t kManyMembers = 32;  // Such groups and larger ones have one price a segment.

class Estimator {
 public:
  Estimator(const EstimateInputs& inputs, const Plan& plan)
      : inputs_(inputs),
        table_(*inputs.table),
        plan_(plan) {}

  Schedule Build() {
    schedule_.workers.resize(plan_.workers.size());
    schedule_.vote_seconds = plan_.workers.size() > 1 ? inputs_.vote_seconds : 0;
    AddReductions();
    for (const Pipeline& pipeline : plan_.pipelines) {
      AddPipeline(pipeline);
    }
    for (std::vector<Action>& actions : schedule_.workers) {
      if (actions.empty()) {
        actions.push_back({.kind = Action::Kind::kVote});
      }
    }
    return std::move(schedule_);
  }

 private:
  const WorkerCosts& Costs(int rank) const { return *inputs_.costs[static_cast<size_t>(rank)]; }

  void Add(int rank, Action action) {
    schedule_.workers[static_cast<size_t>(rank)].push_back(action);
  }

  void AddReductions() {
    reduction_of_.assign(static_cast<size_t>(table_.segments), -1);
    gathers_of_.assign(static_cast<size_t>(table_.segments), Gathers());
    if (plan_.pipelines.size() < 2) {
      return;
    }
    for (int segment = 0; segment < table_.segments; ++segment) {
      if (table_.parameters[static_cast<size_t>(segment)].empty()) {
        continue;
      }
      std::vector<std::pair<int, int>> members;
      for (const Pipeline& pipeline : plan_.pipelines) {
        const auto holder =
            std::find_if(pipeline.stages.begin(), pipeline.stages.end(),
                         [&](const Stage& stage) { return segment < stage.last_segment; });
        const auto cover = CoverRange(pipeline.first_microbatch,
                                      int64_t{pipeline.first_microbatch} + pipeline.microbatches);
        members.emplace_back(holder->worker(), static_cast<int>(cover.size()));
      }
      std::sort(members.begin(), members.end());
      AddReduction(segment, members);
    }
  }

  std::vector<SegmentSum> SumsOf(int segment, size_t members) const {
    std::vector<SegmentSum> sums =
        (plan_.divides_optimizer ? table_.divided_sums : table_.sums)[static_cast<size_t>(segment)];
    if (members < kManyMembers) {
      return sums;
    }
    SegmentSum whole;
    SegmentSum divided;
    for (const SegmentSum& sum : sums) {
      SegmentSum& together = sum.gathered > 0 ? divided : whole;
      together.bytes += sum.bytes;
      together.gathered += sum.gathered;
    }
    std::erase_if(sums = {whole, divided}, [](const SegmentSum& sum) { return sum.bytes == 0; });
    return sums;
  }

  void AddReduction(int segment, const std::vector<std::pair<int, int>>& members) {
    Collective reduction;
    std::vector<int> contributions;
    for (const auto& member : members) {
      reduction.members.push_back(member.first);
      contributions.push_back(member.second);
    }
    Collective gather{.members = reduction.members};
    for (const SegmentSum& sum : SumsOf(segment, members.size())) {
      // The members' contributions do not depend on the segment, so equal sizes among equal members
      // recur.
      const auto found =
          prices_.emplace(std::tuple(reduction.members, sum.bytes, sum.gathered), Prices());
      if (found.second) {
        found.first->second = PricesOf(sum, reduction.members, contributions);
      }
      reduction.seconds += found.first->second.reduction;
      gather.seconds += found.first->second.gather;
      gathers_of_[static_cast<size_t>(segment)].parameters += sum.gathered > 0 ? 1 : 0;
    }
    reduction_of_[static_cast<size_t>(segment)] = static_cast<int>(schedule_.collectives.size());
    schedule_.collectives.push_back(std::move(reduction));
    if (gather.seconds > 0) {
      gathers_of_[static_cast<size_t>(segment)].collective =
          static_cast<int>(schedule_.collectives.size());
      schedule_.collectives.push_back(std::move(gather));
    }
  }

  struct Prices {
    double reduction = 0;
    double gather = 0;
  };

  Prices PricesOf(const SegmentSum& sum,
                  const std::vector<int>& members,
                  const std::vector<int>& contributions) const {
    const comm::LinkTable& links = *inputs_.links;
    const bool exact = plan_.determinism == program::Determinism::kExact;
    if (sum.gathered == 0) {
      return {.reduction = exact ? TreeSumSeconds(links, members, contributions, sum.bytes)
                                 : comm::AllReduceSeconds(links, members, sum.bytes)};
    }
    const auto shares = [&](int64_t bytes) {
      std::vector<int64_t> parts;
      const auto count = std::ssize(members);
      for (int64_t i = 0; i < count; ++i) {
        parts.push_back(bytes * (i + 1) / count - bytes * i / count);
      }
      return parts;
    };
    return {.reduction = exact
                             ? TreeScatterSeconds(links, members, contributions, shares(sum.bytes))
                             : ScatterSeconds(links, members, shares(sum.bytes)),
            .gather = GatherSeconds(links, members, shares(sum.gathered))};
  }

  void AddPipeline(const Pipeline& pipeline) {
    const int stages = static_cast<int>(pipeline.stages.size());
    const int count = pipeline.microbatches;
    // Messages of boundary b (before stage b) and microbatch i: forwards, then backwards.
    const int base = schedule_.messages;
    schedule_.messages += 2 * stages * count;
    const auto message = [&](int boundary, int microbatch, bool backward) {
      return base + 2 * (boundary * count + microbatch) + (backward ? 1 : 0);
    };
    for (int j = 0; j < stages; ++j) {
      const Stage& stage = pipeline.stages[static_cast<size_t>(j)];
      const int warm_up = pipeline.WarmUp(static_cast<size_t>(j));
      const auto forward = [&](int i) {
        Forward(pipeline, j, message(j, i, false), message(j + 1, i, false), i == 0);
      };
      AddGathers(stage, Action::Kind::kCollect, stage.first_segment, stage.last_segment);
      for (int i = 0; i < warm_up; ++i) {
        forward(i);
      }
      for (int i = 0; i < count; ++i) {
        if (i + warm_up < count) {
          forward(i + warm_up);
        }
        Backward(pipeline, j, message(j + 1, i, true), message(j, i, true), i + 1 == count);
      }
      Add(stage.worker(), {.kind = Action::Kind::kVote});
      Add(stage.worker(), {.kind = Action::Kind::kCompute, .seconds = UpdateSeconds(stage)});
    }
  }

  /// Of what a worker of the stage keeps.
  double UpdateSeconds(const Stage& stage) const {
    const WorkerCosts& costs = Costs(stage.worker());
    if (!plan_.divides_optimizer) {
      return costs.Update(stage.first_segment, stage.last_segment);
    }
    double seconds = 0;
    for (int segment = stage.first_segment; segment < stage.last_segment; ++segment) {
      double all = 0;
      double kept = 0;
      for (const SegmentSum& sum : SumsOf(segment, /*members=*/1)) {
        const auto bytes = static_cast<double>(sum.bytes);
        all += bytes;
        kept += bytes / (sum.gathered > 0 ? static_cast<double>(plan_.pipelines.size()) : 1);
      }
      seconds += all > 0 ? costs.Update(segment, segment + 1) * kept / all : 0;
    }
    return seconds;
  }

  /// Issues or awaits the gathers of segments.
  void AddGathers(const Stage& stage, Action::Kind kind, int first, int last) {
    for (int segment = first; segment < last; ++segment) {
      const Gathers& gathers = gathers_of_[static_cast<size_t>(segment)];
      if (gathers.collective >= 0) {
        Add(stage.worker(), {.kind = kind,
                             .seconds = gathers.parameters * Costs(stage.worker()).message_seconds,
                             .collective = gathers.collective});
      }
    }
  }

  /// `first`: of the step, before which each segment's copies are gathered.
  void Forward(const Pipeline& pipeline, int j, int from, int to, bool first) {
    const Stage& stage = pipeline.stages[static_cast<size_t>(j)];
    const WorkerCosts& costs = Costs(stage.worker());
    if (j > 0) {
      Add(stage.worker(),
          {.kind = Action::Kind::kRecv, .seconds = costs.message_seconds, .message = from});
    }
    const int parts =
        first && plan_.divides_optimizer ? stage.last_segment - stage.first_segment : 1;
    const int length = (stage.last_segment - stage.first_segment) / parts;
    for (int begin = stage.first_segment; begin < stage.last_segment; begin += length) {
      if (first) {
        AddGathers(stage, Action::Kind::kAwait, begin, begin + length);
      }
      Add(stage.worker(),
          {.kind = Action::Kind::kCompute, .seconds = costs.Forward(begin, begin + length)});
    }
    if (j + 1 < static_cast<int>(pipeline.stages.size())) {
      Add(stage.worker(), {.kind = Action::Kind::kSend,
                           .seconds = costs.message_seconds,
                           .peer = pipeline.stages[static_cast<size_t>(j) + 1].worker(),
                           .message = to,
                           .bytes = table_.forward_bytes[static_cast<size_t>(stage.last_segment)]});
    }
  }

  void Backward(const Pipeline& pipeline, int j, int from, int to, bool last) {
    const Stage& stage = pipeline.stages[static_cast<size_t>(j)];
    const WorkerCosts& costs = Costs(stage.worker());
    if (j + 1 < static_cast<int>(pipeline.stages.size())) {
      Add(stage.worker(),
          {.kind = Action::Kind::kRecv, .seconds = costs.message_seconds, .message = from});
    }
    const auto seconds = [&](int first, int end) {
      return costs.Backward(first, end) + (stage.recompute ? costs.Again(first, end) : 0);
    };
    if (last) {
      // Gradients of a segment are complete, and their reduction is issued, when its last backward
      // ends.
      for (int segment = stage.last_segment - 1; segment >= stage.first_segment; --segment) {
        Add(stage.worker(),
            {.kind = Action::Kind::kCompute, .seconds = seconds(segment, segment + 1)});
        const int reduction = reduction_of_[static_cast<size_t>(segment)];
        if (reduction >= 0) {
          Add(stage.worker(), {.kind = Action::Kind::kCollect, .collective = reduction});
        }
      }
    } else {
      Add(stage.worker(), {.kind = Action::Kind::kCompute,
                           .seconds = seconds(stage.first_segment, stage.last_segment)});
    }
    if (j > 0) {
      Add(stage.worker(),
          {.kind = Action::Kind::kSend,
           .seconds = costs.message_seconds,
           .peer = pipeline.stages[static_cast<size_t>(j) - 1].worker(),
           .message = to,
           .bytes = table_.backward_bytes[static_cast<size_t>(stage.first_segment)]});
    }
  }

  const EstimateInputs& inputs_;
  const SegmentTable& table_;
  const Plan& plan_;
  Schedule schedule_;
  std::vector<int> reduction_of_;  ///< By segment: index of its reduction; -1: none.
  /// The gathers of a segment's parameters, as one.
  struct Gathers {
    int collective = -1;  ///< -1: none.
    int parameters = 0;
  };
  std::vector<Gathers> gathers_of_;  ///< By segment.
  std::map<std::tuple<std::vector<int>, int64_t, int64_t>, Prices> prices_;
};

}  // namespace

double EstimateStepSeconds(const EstimateInputs& inputs, const Plan& plan) {
  const Schedule schedule = Estimator(inputs, plan).Build();
  const Result<ScheduleTimes> times = RunSchedule(schedule, *inputs.links);
  return times.ok() ? times->step_seconds : std::numeric_limits<double>::infinity();
}

}  // namespace heddle::planner
