#include "elastic/planning/plan_programs.h"

#include <tuple>
#include <utility>

#include "base/thread.h"
#include "engine/program/slices.h"
#include "engine/program/stage_graph.h"
#include "engine/program/stages.h"
#include "engine/program/verify/verify.h"

namespace heddle::elastic {
namespace {

constexpr size_t kMaxFollowed = 64;

Result<uint64_t> HashOf(const graph::Graph& graph,
                        const program::Plan& plan,
                        const program::Program& program) {
  if (program.pieces.empty()) {
    return program::ProgramHash(program, graph);
  }
  HEDDLE_ASSIGN_OR_RETURN(const graph::Graph member,
                          program::MemberGraph(graph, plan, program.rank));
  return program::ProgramHash(program, member);
}

/// By rank, the numbers of the pieces whose master and moments a worker keeps, ascending; and the
/// number of all.
std::pair<std::vector<std::vector<int32_t>>, int32_t> KeptNumbers(const graph::Graph& graph,
                                                                  const program::Plan& plan) {
  std::vector<std::vector<int32_t>> kept(plan.workers.size());
  const std::vector<std::vector<int>> segments = program::ParameterSegments(graph);
  int32_t number = 0;
  for (size_t p = 0; p < segments.size(); ++p) {
    for (const program::HeldPiece& piece :
         program::KeptPiecesOf(graph, plan, static_cast<graph::ParameterId>(p), segments[p])) {
      for (const int holder : piece.holders) {
        kept[static_cast<size_t>(holder)].push_back(number);
      }
      ++number;
    }
  }
  return {std::move(kept), number};
}

Status Describe(const graph::Graph& graph,
                const program::Plan& plan,
                const std::vector<program::Program>& programs,
                PlanOutcome& outcome) {
  std::tie(outcome.parameters, outcome.parameter_count) = KeptNumbers(graph, plan);
  for (const program::Program& program : programs) {
    HEDDLE_ASSIGN_OR_RETURN(const uint64_t hash, HashOf(graph, plan, program));
    outcome.program_hashes.push_back(hash);
  }
  return Status::Ok();
}

}  // namespace

Status TakePrograms(const graph::Graph& graph,
                    const program::Plan& plan,
                    const std::vector<program::Program>& programs,
                    PlanOutcome& outcome) {
  Status verified;
  // Beside the hashes, which take longer: a recovery waits for both.
  Thread verifier("verify", [&] {
    verified = program::Verify(graph, plan, programs,
                               programs.size() > kMaxFollowed ? program::VerifyScope::kEveryClass
                                                              : program::VerifyScope::kEveryWorker);
  });
  const Status described = Describe(graph, plan, programs, outcome);
  verifier.Join();
  HEDDLE_RETURN_IF_ERROR(described);
  return verified.WithContext("the plan's programs do not fit each other, and are not sent");
}

}  // namespace heddle::elastic
