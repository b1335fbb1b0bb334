#include "engine/program/lowering/stage_template.h"

#include <algorithm>
#include <set>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "engine/program/lowering/stage_lifetimes.h"
#include "engine/program/lowering/stage_order.h"
#include "engine/program/stages.h"

namespace heddle::program {

using graph::Node;
using graph::Phase;
using graph::Tensor;
using graph::TensorId;
using graph::TensorKind;

namespace {

/// What a worker runs of a stage. A stage of one worker is the trivial case: its graph is the job's.
class TemplateBuilder {
 public:
  TemplateBuilder(const graph::Graph& job,
                  const GraphAnalysis& analysis,
                  const Pipeline& pipeline,
                  int stage,
                  const StageGraph* group,
                  int member)
      : job_(job),
        analysis_(analysis),
        pipeline_(pipeline),
        stage_index_(stage),
        stage_(pipeline.stages[static_cast<size_t>(stage)]),
        group_(group),
        member_(member),
        graph_(group == nullptr ? job : group->sharded.graph),
        order_(group == nullptr ? OrderOf(job, analysis, stage_) : OrderOf(*group, stage_)) {}

  StageTemplate Build() && {
    FindCrossings();
    for (const StageAction& action : order_.forward) {
      Run(action, {}, result_.forward);
    }
    for (const StageAction& action : order_.backward) {
      for (const TensorId input : InputsOf(action)) {
        if (IsComputedAgain(input)) {
          RunSegmentAgain(made_.at(input));
        }
      }
      Run(action, {.backward = true}, result_.backward);
    }
    result_.exchanges = std::move(order_.exchanges);
    AwaitExchanges(result_);
    PlaceFrees(result_);
    return std::move(result_);
  }

 private:
  struct Pass {
    bool backward = false;
    bool again = false;  ///< A forward that runs once more, in the backward.
  };

  std::span<const TensorId> InputsOf(const StageAction& action) const {
    if (action.node >= 0) {
      return graph_.node(action.node).inputs;
    }
    return {&ExchangeOf(action).from, 1};
  }
  std::span<const TensorId> OutputsOf(const StageAction& action) const {
    if (action.node >= 0) {
      return graph_.node(action.node).outputs;
    }
    return {&ExchangeOf(action).to, 1};
  }
  const graph::Exchange& ExchangeOf(const StageAction& action) const {
    return order_.exchanges[static_cast<size_t>(action.exchange)];
  }

  // The segments of what the forward makes, if some of it is made again; and what a segment makes
  // for another one of the stage; and what leaves the stage or comes from outside.
  void FindCrossings() {
    if (group_ != nullptr) {
      for (const auto& [id, part] : group_->sharded.edges) {
        messages_.emplace(part, id);
      }
    }
    for (const StageAction& action : order_.forward) {
      if (!stage_.recompute && !Gathers(action)) {
        continue;
      }
      for (const TensorId output : OutputsOf(action)) {
        made_.emplace(output, action.segment);
      }
    }
    if (made_.empty()) {
      return;
    }
    for (const std::vector<StageAction>* list : {&order_.forward, &order_.backward}) {
      for (const StageAction& action : *list) {
        for (const TensorId input : InputsOf(action)) {
          const auto made = made_.find(input);
          if (made != made_.end() && made->second != action.segment) {
            kept_.insert(input);
          }
        }
      }
    }
  }

  // Whether all members get what each has a part of by the layout. Only the parts are kept until the
  // backward.
  bool Gathers(const StageAction& action) const {
    if (action.exchange < 0 || ExchangeOf(action).form != graph::ExchangeForm::kGather) {
      return false;
    }
    const TensorId from = ExchangeOf(action).from;
    return graph_.tensor(from).kind != TensorKind::kParameter &&
           group_->sharded.shardings[static_cast<size_t>(from)].cut >= 0;
  }

  // With recomputation only what crosses from one segment into another is kept between a
  // microbatch's forward and backward; everything else that a segment's own backward reads is
  // computed again. Without it, what was gathered is gathered again.
  bool IsComputedAgain(TensorId id) const { return made_.count(id) > 0 && kept_.count(id) == 0; }

  // The tensor of the job's graph that travels as `id`.
  TensorId MessageOf(TensorId id) const {
    if (group_ == nullptr) {
      return id;
    }
    const auto found = messages_.find(id);
    return found == messages_.end() ? -1 : found->second;
  }

  int SegmentOf(TensorId message) const { return job_.node(job_.tensor(message).producer).segment; }

  int NewValue(TensorId tensor) {
    result_.values.push_back(tensor);
    return static_cast<int>(result_.values.size()) - 1;
  }

  // The value of a tensor that the stage computed first, loads or receives.
  int Original(TensorId id, std::vector<StageStep>& steps) {
    if (const auto found = original_.find(id); found != original_.end()) {
      return found->second;
    }
    const Tensor& tensor = graph_.tensor(id);
    const int value = NewValue(id);
    original_.emplace(id, value);
    StageStep step{.code = Code::kLoad, .outputs = {value}};
    if (tensor.kind != TensorKind::kTokens && tensor.kind != TensorKind::kTargets) {
      step.code = Code::kRecv;
      step.message = MessageOf(id);
      HEDDLE_CHECK(step.message >= 0 && job_.tensor(step.message).producer >= 0,
                   "{} has no producer", tensor.name);
      const int source = StageOf(pipeline_, SegmentOf(step.message));
      HEDDLE_CHECK(source >= 0 && source != stage_index_, "{} is not computed yet", tensor.name);
      step.peer = Counterpart(source);
    }
    steps.push_back(std::move(step));
    return value;
  }

  int ValueOf(TensorId id, Pass pass, std::vector<StageStep>& steps) {
    if (graph_.tensor(id).kind == TensorKind::kParameter) {
      return -1;
    }
    return pass.backward && IsComputedAgain(id) ? again_.at(id) : Original(id, steps);
  }

  // The worker of another stage whose parts of what travels are this worker's (BuildStageGraph).
  int Counterpart(int stage) const {
    const Group& group = pipeline_.stages[static_cast<size_t>(stage)].group;
    HEDDLE_CHECK(static_cast<size_t>(member_) < group.size(),
                 "member {} has a part of what travels to a group of {}", member_, group.size());
    return group[static_cast<size_t>(member_)];
  }

  // Whether this worker has a part of a tensor.
  bool HasPart(TensorId id) const {
    return group_ == nullptr || graph::BoxOf(group_->sharded.shardings[static_cast<size_t>(id)],
                                             graph_.tensor(id).type.shape, member_)
                                    .has_value();
  }

  // Members without a share receive their part, too: the senders do not know who reads it.
  void Receive(const StageAction& action, std::vector<StageStep>& steps) {
    for (const TensorId input : InputsOf(action)) {
      const TensorId message = MessageOf(input);
      if (message >= 0 && StageOf(pipeline_, SegmentOf(message)) != stage_index_ &&
          HasPart(input)) {
        Original(input, steps);
      }
    }
  }

  bool Runs(const StageAction& action) const {
    return group_ == nullptr || action.node < 0 ||
           group_->sharded.divisions[static_cast<size_t>(action.node)].Runs(member_);
  }

  void Run(const StageAction& action, Pass pass, std::vector<StageStep>& steps) {
    StageStep step{.code = action.node >= 0 ? Code::kRun : Code::kExchange,
                   .node = action.node,
                   .exchange = action.exchange,
                   .again = pass.again};
    const auto has = [&](const std::vector<graph::Range>& ranges) {
      return !ranges[static_cast<size_t>(member_)].empty();
    };
    const bool runs = Runs(action);
    if (runs && (action.node >= 0 || has(ExchangeOf(action).sent))) {
      for (const TensorId input : InputsOf(action)) {
        step.inputs.push_back(ValueOf(input, pass, steps));
      }
    } else {
      Receive(action, steps);
    }
    if (!runs) {
      return;
    }
    if (action.node >= 0 || has(ExchangeOf(action).received)) {
      for (const TensorId output : OutputsOf(action)) {
        const int value = NewValue(output);
        (pass.again ? again_ : original_).insert_or_assign(output, value);
        step.outputs.push_back(value);
        AddContributions(output, value, step);
        if (!pass.again && output == Loss()) {
          result_.loss = value;
        }
      }
    }
    const std::vector<int> outputs = step.outputs;
    steps.push_back(std::move(step));
    if (!pass.again) {
      for (const int value : outputs) {
        Send(value, steps);
      }
    }
  }

  // The loss, where this worker reports it.
  TensorId Loss() const {
    if (group_ == nullptr) {
      return job_.loss;
    }
    return member_ == 0 ? group_->loss : -1;
  }

  void AddContributions(TensorId id, int value, StageStep& step) const {
    if (group_ == nullptr) {
      const Tensor& tensor = graph_.tensor(id);
      if (tensor.kind == TensorKind::kWeightGradient) {
        step.contributes.push_back(
            {.value = value, .parameter = tensor.parameter, .piece = 0, .use = tensor.use});
      }
      return;
    }
    const auto found = group_->contributions.find(id);
    if (found == group_->contributions.end()) {
      return;
    }
    for (const Contribution& one : found->second) {
      if (std::ranges::find(one.members, member_) != one.members.end()) {
        step.contributes.push_back(
            {.value = value, .parameter = one.parameter, .piece = one.piece, .use = one.use});
      }
    }
  }

  // One message to each other stage that reads the tensor.
  void Send(int value, std::vector<StageStep>& steps) {
    const TensorId message = MessageOf(result_.values[static_cast<size_t>(value)]);
    if (message < 0) {
      return;
    }
    std::set<int> stages;
    for (const graph::NodeId reader : analysis_.readers[static_cast<size_t>(message)]) {
      stages.insert(StageOf(pipeline_, job_.node(reader).segment));
    }
    stages.erase(stage_index_);
    for (const int target : stages) {
      steps.push_back({.code = Code::kSend,
                       .peer = Counterpart(target),
                       .message = message,
                       .inputs = {value}});
    }
  }

  // Runs what the stage's backward needs of a segment's forward once more, when it is first needed.
  void RunSegmentAgain(int segment) {
    if (!again_segments_.insert(segment).second) {
      return;
    }
    std::set<TensorId> needed;
    for (const StageAction& action : order_.backward) {
      for (const TensorId input : InputsOf(action)) {
        if (IsComputedAgain(input) && made_.at(input) == segment) {
          needed.insert(input);
        }
      }
    }
    std::vector<const StageAction*> order;
    for (auto action = order_.forward.rbegin(); action != order_.forward.rend(); ++action) {
      const std::span<const TensorId> outputs = OutputsOf(*action);
      if (action->segment != segment ||
          std::none_of(outputs.begin(), outputs.end(),
                       [&](TensorId output) { return needed.count(output) > 0; })) {
        continue;
      }
      order.push_back(&*action);
      for (const TensorId input : InputsOf(*action)) {
        if (IsComputedAgain(input)) {
          needed.insert(input);
        }
      }
    }
    for (auto action = order.rbegin(); action != order.rend(); ++action) {
      Run(**action, {.backward = true, .again = true}, result_.backward);
    }
  }

  const graph::Graph& job_;
  const GraphAnalysis& analysis_;
  const Pipeline& pipeline_;
  const int stage_index_;
  const Stage& stage_;
  const StageGraph* const group_;
  const int member_;
  const graph::Graph& graph_;  ///< The job's, or that of the group's members.
  StageOrder order_;
  std::unordered_map<TensorId, TensorId> messages_;
  std::unordered_map<TensorId, int> made_;  ///< What may be made again, and its segment.
  std::unordered_set<TensorId> kept_;
  std::unordered_map<TensorId, int> original_;
  std::unordered_map<TensorId, int> again_;
  std::set<int> again_segments_;
  StageTemplate result_;
};

}  // namespace

StageTemplate BuildStageTemplate(const graph::Graph& graph,
                                 const GraphAnalysis& analysis,
                                 const Pipeline& pipeline,
                                 int stage) {
  return TemplateBuilder(graph, analysis, pipeline, stage, nullptr, 0).Build();
}

StageTemplate BuildStageTemplate(const graph::Graph& graph,
                                 const GraphAnalysis& analysis,
                                 const Pipeline& pipeline,
                                 int stage,
                                 const StageGraph& group,
                                 int member) {
  return TemplateBuilder(graph, analysis, pipeline, stage, &group, member).Build();
}

}  // namespace heddle::program
