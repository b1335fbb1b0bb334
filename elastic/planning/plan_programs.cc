#include "elastic/planning/plan_programs.h"

#include "base/thread.h"
#include "engine/program/pieces.h"
#include "engine/program/stage_graph.h"
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

/// Numbers of the pieces that a worker holds; `first`: by parameter, that of its first piece.
std::vector<int32_t> HeldNumbers(const program::Program& program,
                                 const std::vector<int32_t>& first) {
  std::vector<int32_t> held;
  if (!program.pieces.empty()) {
    for (const program::Piece& piece : program.pieces) {
      held.push_back(first[static_cast<size_t>(piece.parameter)] + piece.index);
    }
    return held;
  }
  for (const graph::ParameterId parameter : program.parameters) {
    for (int32_t n = first[static_cast<size_t>(parameter)];
         n < first[static_cast<size_t>(parameter) + 1]; ++n) {
      held.push_back(n);
    }
  }
  return held;
}

Status Describe(const graph::Graph& graph,
                const program::Plan& plan,
                const std::vector<program::Program>& programs,
                PlanOutcome& outcome) {
  const std::vector<int32_t> first = program::FirstPieces(graph, plan);
  outcome.parameter_count = first.back();
  for (const program::Program& program : programs) {
    HEDDLE_ASSIGN_OR_RETURN(const uint64_t hash, HashOf(graph, plan, program));
    outcome.program_hashes.push_back(hash);
    outcome.parameters.push_back(HeldNumbers(program, first));
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
