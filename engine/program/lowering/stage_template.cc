#include "engine/program/lowering/stage_template.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "base/check.h"
#include "engine/program/stages.h"

namespace heddle::program {

using graph::Node;
using graph::NodeId;
using graph::Phase;
using graph::Tensor;
using graph::TensorId;
using graph::TensorKind;

namespace {

class TemplateBuilder {
 public:
  TemplateBuilder(const graph::Graph& graph,
                  const GraphAnalysis& analysis,
                  const Pipeline& pipeline,
                  int stage)
      : graph_(graph),
        analysis_(analysis),
        pipeline_(pipeline),
        stage_index_(stage),
        stage_(pipeline.stages[static_cast<size_t>(stage)]) {}

  StageTemplate Build() && {
    SplitNodes();
    for (const NodeId node : forward_) {
      Run(node, false, result_.forward);
    }
    for (const NodeId node : backward_) {
      for (const TensorId input : graph_.node(node).inputs) {
        if (IsComputedAgain(input)) {
          RunSegmentAgain(ProducerSegment(input));
        }
      }
      Run(node, false, result_.backward);
    }
    PlaceFrees();
    return std::move(result_);
  }

 private:
  void SplitNodes() {
    std::vector<NodeId> nodes;
    for (int segment = stage_.first_segment; segment < stage_.last_segment; ++segment) {
      const std::vector<NodeId>& list = analysis_.segment_nodes[static_cast<size_t>(segment)];
      nodes.insert(nodes.end(), list.begin(), list.end());
    }
    std::sort(nodes.begin(), nodes.end());
    for (const NodeId node : nodes) {
      (graph_.node(node).phase == Phase::kForward ? forward_ : backward_).push_back(node);
    }
  }

  bool Holds(int segment) const {
    return segment >= stage_.first_segment && segment < stage_.last_segment;
  }
  int ProducerSegment(TensorId tensor) const {
    return graph_.node(graph_.tensor(tensor).producer).segment;
  }

  // With recomputation only what crosses from one segment into another is kept between a
  // microbatch's forward and backward; everything else that a segment's own backward reads is
  // computed again.
  bool IsComputedAgain(TensorId id) const {
    const Tensor& tensor = graph_.tensor(id);
    if (!stage_.recompute || tensor.producer < 0) {
      return false;
    }
    const Node& producer = graph_.node(tensor.producer);
    if (producer.phase != Phase::kForward || !Holds(producer.segment)) {
      return false;
    }
    const std::vector<NodeId>& readers = analysis_.readers[static_cast<size_t>(id)];
    return std::none_of(readers.begin(), readers.end(), [&](NodeId reader) {
      const int segment = graph_.node(reader).segment;
      return segment != producer.segment && Holds(segment);
    });
  }

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
      HEDDLE_CHECK(tensor.producer >= 0, "{} has no producer", tensor.name);
      const int source = StageOf(pipeline_, ProducerSegment(id));
      HEDDLE_CHECK(source >= 0 && source != stage_index_, "{} is not computed yet", tensor.name);
      step.code = Code::kRecv;
      step.peer = pipeline_.stages[static_cast<size_t>(source)].worker();
    }
    steps.push_back(std::move(step));
    return value;
  }

  void Run(NodeId id, bool again, std::vector<StageStep>& steps) {
    const Node& node = graph_.node(id);
    StageStep step{.code = Code::kRun, .node = id};
    const bool backward = node.phase != Phase::kForward;
    for (const TensorId input : node.inputs) {
      if (graph_.tensor(input).kind == TensorKind::kParameter) {
        step.inputs.push_back(-1);
      } else if ((again || backward) && IsComputedAgain(input)) {
        step.inputs.push_back(again_.at(input));
      } else {
        step.inputs.push_back(Original(input, steps));
      }
    }
    for (const TensorId output : node.outputs) {
      const int value = NewValue(output);
      (again ? again_ : original_).insert_or_assign(output, value);
      step.outputs.push_back(value);
      if (!again && output == graph_.loss) {
        result_.loss = value;
      }
    }
    steps.push_back(std::move(step));
    if (!again) {
      for (const TensorId output : node.outputs) {
        Send(output, steps);
      }
    }
  }

  // One message to each other stage that reads the tensor.
  void Send(TensorId tensor, std::vector<StageStep>& steps) {
    std::set<int> stages;
    for (const NodeId reader : analysis_.readers[static_cast<size_t>(tensor)]) {
      stages.insert(StageOf(pipeline_, graph_.node(reader).segment));
    }
    stages.erase(stage_index_);
    for (const int target : stages) {
      steps.push_back({.code = Code::kSend,
                       .peer = pipeline_.stages[static_cast<size_t>(target)].worker(),
                       .inputs = {original_.at(tensor)}});
    }
  }

  // Runs what the stage's backward needs of a segment's forward once more, when it is first needed.
  void RunSegmentAgain(int segment) {
    if (!again_segments_.insert(segment).second) {
      return;
    }
    std::set<TensorId> needed;
    for (const NodeId node : backward_) {
      for (const TensorId input : graph_.node(node).inputs) {
        if (IsComputedAgain(input) && ProducerSegment(input) == segment) {
          needed.insert(input);
        }
      }
    }
    std::vector<NodeId> order;
    for (auto node = forward_.rbegin(); node != forward_.rend(); ++node) {
      const Node& candidate = graph_.node(*node);
      if (candidate.segment != segment ||
          std::none_of(candidate.outputs.begin(), candidate.outputs.end(),
                       [&](TensorId output) { return needed.count(output) > 0; })) {
        continue;
      }
      order.push_back(*node);
      for (const TensorId input : candidate.inputs) {
        if (graph_.tensor(input).kind != TensorKind::kParameter && IsComputedAgain(input)) {
          needed.insert(input);
        }
      }
    }
    for (auto node = order.rbegin(); node != order.rend(); ++node) {
      Run(*node, true, result_.backward);
    }
  }

  void PlaceFrees() {
    std::vector<bool> seen(result_.values.size(), false);
    for (size_t value = 0; value < seen.size(); ++value) {
      seen[value] = static_cast<int>(value) == result_.loss ||
                    graph_.tensor(result_.values[value]).kind == TensorKind::kWeightGradient;
    }
    const auto place = [&](std::vector<StageStep>& steps) {
      for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
        for (const std::vector<int>* list : {&step->inputs, &step->outputs}) {
          for (const int value : *list) {
            if (value >= 0 && !seen[static_cast<size_t>(value)]) {
              seen[static_cast<size_t>(value)] = true;
              step->frees.push_back(value);
            }
          }
        }
        std::sort(step->frees.begin(), step->frees.end());
      }
    };
    place(result_.backward);
    place(result_.forward);
  }

  const graph::Graph& graph_;
  const GraphAnalysis& analysis_;
  const Pipeline& pipeline_;
  const int stage_index_;
  const Stage& stage_;
  std::vector<NodeId> forward_;
  std::vector<NodeId> backward_;
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
  return TemplateBuilder(graph, analysis, pipeline, stage).Build();
}

}  // namespace heddle::program
