#include "engine/program/lowering/lower.h"

#include <algorithm>
#include <set>

#include "engine/program/lowering/gradient_sums.h"
#include "engine/program/lowering/stage_template.h"
#include "engine/program/stages.h"

namespace heddle::program {

using graph::Graph;
using graph::ParameterId;
using graph::TensorId;
using graph::TensorKind;

namespace {

// Stamps out a stage's template for each microbatch.
class Lowering {
 public:
  Lowering(const Graph& graph,
           const GraphAnalysis& analysis,
           const Plan& plan,
           int rank,
           GradientSums sums)
      : graph_(graph),
        analysis_(analysis),
        plan_(plan),
        position_(PositionOf(plan, rank)),
        sums_(std::move(sums)),
        out_(Program{.generation = plan.generation,
                     .rank = rank,
                     .workers = static_cast<int>(plan.workers.size()),
                     .determinism = plan.determinism}) {}

  Program Run() && {
    if (position_.pipeline >= 0) {
      RunSchedule();
    }
    Finish();
    return std::move(out_.program());
  }

 private:
  const Pipeline& pipeline() const {
    return plan_.pipelines[static_cast<size_t>(position_.pipeline)];
  }

  // 1F1B: some forwards first, then one backward for each forward.
  void RunSchedule() {
    template_ = BuildStageTemplate(graph_, analysis_, pipeline(), position_.stage);
    const int count = pipeline().microbatches;
    const int warm_up = pipeline().WarmUp(static_cast<size_t>(position_.stage));
    values_.assign(static_cast<size_t>(count), {});
    for (int i = 0; i < warm_up; ++i) {
      Forward(i);
    }
    for (int i = 0; i < count; ++i) {
      if (i + warm_up < count) {
        Forward(i + warm_up);
      }
      Backward(i);
    }
  }

  void Forward(int number) {
    values_[static_cast<size_t>(number)].assign(template_.values.size(), -1);
    Emit(template_.forward, number);
    if (template_.loss >= 0) {
      const SlotId slot = values_[static_cast<size_t>(number)][static_cast<size_t>(template_.loss)];
      out_.program().vote.losses.push_back(
          {.microbatch = pipeline().first_microbatch + number, .slot = slot});
    }
  }

  void Backward(int number) {
    Emit(template_.backward, number);
    values_[static_cast<size_t>(number)] = {};
  }

  void Emit(const std::vector<StageStep>& steps, int number) {
    std::vector<SlotId>& slots = values_[static_cast<size_t>(number)];
    const int microbatch = pipeline().first_microbatch + number;
    for (const StageStep& step : steps) {
      Instruction instruction{
          .code = step.code, .node = step.node, .microbatch = microbatch, .peer = step.peer};
      for (const int value : step.inputs) {
        instruction.inputs.push_back(value < 0 ? -1 : slots[static_cast<size_t>(value)]);
      }
      for (const int value : step.outputs) {
        const TensorId tensor = template_.values[static_cast<size_t>(value)];
        slots[static_cast<size_t>(value)] =
            out_.NewSlot(tensor, microbatch, graph_.tensor(tensor).type);
        instruction.outputs.push_back(slots[static_cast<size_t>(value)]);
      }
      if (step.code == Code::kSend || step.code == Code::kRecv) {
        const int value = step.code == Code::kSend ? step.inputs.front() : step.outputs.front();
        instruction.tag = MessageTag(template_.values[static_cast<size_t>(value)], microbatch);
        peers_.insert(step.peer);
      }
      out_.Emit(std::move(instruction));
      for (const int value : step.frees) {
        out_.Free(slots[static_cast<size_t>(value)]);
      }
      Contribute(step, slots, microbatch);
    }
  }

  void Contribute(const StageStep& step, const std::vector<SlotId>& slots, int microbatch) {
    if (step.code != Code::kRun) {
      return;
    }
    for (const int value : step.outputs) {
      const graph::Tensor& tensor = graph_.tensor(template_.values[static_cast<size_t>(value)]);
      if (tensor.kind == TensorKind::kWeightGradient) {
        sums_.Add(tensor.parameter, tensor.use, microbatch, slots[static_cast<size_t>(value)],
                  out_);
      }
    }
  }

  void Finish() {
    const std::map<ParameterId, SlotId> gradients = sums_.Finish(out_);
    Program& program = out_.program();
    for (const auto& [parameter, slot] : gradients) {
      if (sums_.Owns(parameter)) {
        program.vote.norms.push_back({.parameter = parameter, .gradient = slot});
      }
    }
    program.vote_index = program.instructions.size();
    out_.Emit({.code = Code::kVote});
    for (const VoteShare::Loss& loss : program.vote.losses) {
      out_.Free(loss.slot);
    }
    for (const auto& [parameter, slot] : gradients) {
      out_.Emit({.code = Code::kUpdate, .inputs = {slot}, .parameter = parameter});
      out_.Free(slot);
    }
    FinishHeader(program);
  }

  void FinishHeader(Program& program) {
    if (position_.pipeline >= 0) {
      const Stage& stage = pipeline().stages[static_cast<size_t>(position_.stage)];
      std::set<ParameterId> held;
      for (int segment = stage.first_segment; segment < stage.last_segment; ++segment) {
        const auto& list = analysis_.segment_parameters[static_cast<size_t>(segment)];
        held.insert(list.begin(), list.end());
      }
      program.parameters.assign(held.begin(), held.end());
    }
    for (const Instruction& instruction : program.instructions) {
      peers_.insert(instruction.group.begin(), instruction.group.end());
    }
    peers_.erase(program.rank);
    program.peers.assign(peers_.begin(), peers_.end());
  }

  const Graph& graph_;
  const GraphAnalysis& analysis_;
  const Plan& plan_;
  const Position position_;
  GradientSums sums_;
  ProgramBuilder out_;
  StageTemplate template_;
  std::vector<std::vector<SlotId>> values_;  ///< Slot by microbatch of the pipeline, by value.
  std::set<int> peers_;
};

Result<Program> LowerAnalyzed(const Graph& graph,
                              const GraphAnalysis& analysis,
                              const Plan& plan,
                              int rank) {
  HEDDLE_ASSIGN_OR_RETURN(GradientSums sums, GradientSums::Create(graph, analysis, plan, rank));
  return Lowering(graph, analysis, plan, rank, std::move(sums)).Run();
}

}  // namespace

Result<Program> Lower(const Graph& graph, const Plan& plan, int rank) {
  HEDDLE_RETURN_IF_ERROR(ValidateUngrouped(plan, graph));
  if (rank < 0 || static_cast<size_t>(rank) >= plan.workers.size()) {
    return InvalidArgumentError("rank {} is not in 0..{}", rank, plan.workers.size() - 1);
  }
  HEDDLE_ASSIGN_OR_RETURN(const GraphAnalysis analysis, Analyze(graph));
  return LowerAnalyzed(graph, analysis, plan, rank);
}

Result<std::vector<Program>> LowerAll(const Graph& graph, const Plan& plan) {
  HEDDLE_RETURN_IF_ERROR(ValidateUngrouped(plan, graph));
  HEDDLE_ASSIGN_OR_RETURN(const GraphAnalysis analysis, Analyze(graph));
  std::vector<Program> programs;
  programs.reserve(plan.workers.size());
  for (size_t rank = 0; rank < plan.workers.size(); ++rank) {
    HEDDLE_ASSIGN_OR_RETURN(Program program,
                            LowerAnalyzed(graph, analysis, plan, static_cast<int>(rank)));
    programs.push_back(std::move(program));
  }
  return programs;
}

}  // namespace heddle::program
