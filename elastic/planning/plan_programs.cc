#include "elastic/planning/plan_programs.h"

#include "base/thread.h"
#include "engine/program/verify/verify.h"

namespace heddle::elastic {
namespace {

constexpr size_t kMaxFollowed = 64;

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
  for (const program::Program& program : programs) {
    outcome.program_hashes.push_back(program::ProgramHash(program, graph));
    outcome.parameters.emplace_back(program.parameters.begin(), program.parameters.end());
  }
  verifier.Join();
  return verified.WithContext("the plan's programs do not fit each other, and are not sent");
}

}  // namespace heddle::elastic
