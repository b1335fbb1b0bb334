#include "engine/program/lowering/lower.h"

#include <map>
#include <utility>

#include "engine/program/lowering/schedule.h"
#include "engine/program/pieces.h"
#include "engine/program/stages.h"

namespace heddle::program {

using graph::Graph;

namespace {

// Lowers workers of one plan; what the members of a stage share is made once.
class Lowering {
 public:
  // Of a valid plan.
  static Result<Lowering> Create(const Graph& graph, const Plan& plan) {
    HEDDLE_ASSIGN_OR_RETURN(GraphAnalysis analysis, Analyze(graph));
    HEDDLE_RETURN_IF_ERROR(CheckPieces(graph, plan));
    return Lowering(graph, plan, std::move(analysis));
  }

  Result<Program> Run(int rank) {
    const Position position = PositionOf(plan_, rank);
    if (position.pipeline < 0) {
      return Stamp(graph_, rank, {});
    }
    const Pipeline& pipeline = plan_.pipelines[static_cast<size_t>(position.pipeline)];
    const Stage& stage = pipeline.stages[static_cast<size_t>(position.stage)];
    if (stage.layout < 0) {
      return Stamp(graph_, rank, BuildStageTemplate(graph_, analysis_, pipeline, position.stage));
    }
    HEDDLE_ASSIGN_OR_RETURN(const StageGraph* const group, GroupOf(stage));
    const graph::LocalGraph local = graph::Localise(group->sharded, position.member);
    return Stamp(
        local.graph, rank,
        BuildStageTemplate(graph_, analysis_, pipeline, position.stage, *group, position.member));
  }

 private:
  Lowering(const Graph& graph, const Plan& plan, GraphAnalysis analysis)
      : graph_(graph),
        plan_(plan),
        analysis_(std::move(analysis)) {}

  Result<Program> Stamp(const Graph& graph, int rank, StageTemplate steps) const {
    HEDDLE_ASSIGN_OR_RETURN(GradientSums sums,
                            GradientSums::Create(graph_, analysis_, plan_, rank, steps));
    return StampSchedule({.graph = graph,
                          .analysis = analysis_,
                          .plan = plan_,
                          .rank = rank,
                          .steps = std::move(steps),
                          .sums = std::move(sums)});
  }

  Result<const StageGraph*> GroupOf(const Stage& stage) {
    const std::vector<int> key = StageGraphKey(plan_, stage);
    auto found = groups_.find(key);
    if (found == groups_.end()) {
      HEDDLE_ASSIGN_OR_RETURN(StageGraph group, BuildStageGraph(graph_, plan_, stage));
      found = groups_.emplace(key, std::move(group)).first;
    }
    return &found->second;
  }

  const Graph& graph_;
  const Plan& plan_;
  GraphAnalysis analysis_;
  std::map<std::vector<int>, StageGraph> groups_;  ///< By StageGraphKey.
};

}  // namespace

Result<Program> Lower(const Graph& graph, const Plan& plan, int rank) {
  HEDDLE_RETURN_IF_ERROR(ValidatePlan(plan, graph));
  if (rank < 0 || static_cast<size_t>(rank) >= plan.workers.size()) {
    return InvalidArgumentError("rank {} is not in 0..{}", rank, plan.workers.size() - 1);
  }
  HEDDLE_ASSIGN_OR_RETURN(Lowering lowering, Lowering::Create(graph, plan));
  return lowering.Run(rank);
}

Result<std::vector<Program>> LowerAll(const Graph& graph, const Plan& plan) {
  HEDDLE_RETURN_IF_ERROR(ValidatePlan(plan, graph));
  HEDDLE_ASSIGN_OR_RETURN(Lowering lowering, Lowering::Create(graph, plan));
  std::vector<Program> programs;
  programs.reserve(plan.workers.size());
  for (size_t rank = 0; rank < plan.workers.size(); ++rank) {
    HEDDLE_ASSIGN_OR_RETURN(Program program, lowering.Run(static_cast<int>(rank)));
    programs.push_back(std::move(program));
  }
  return programs;
}

}  // namespace heddle::program
