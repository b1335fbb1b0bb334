#include <fmt/format.h>

#include "base/units.h"
#include "planner/search/search.h"

namespace heddle::planner {
namespace {

std::string Bytes(int64_t bytes) {
  return FormatByteSize(ByteSize{bytes});
}

std::string WorkerLines(const SearchRequest& request, const SearchOutcome& outcome) {
  std::string text;
  const program::Plan& plan = outcome.plan;
  for (size_t rank = 0; rank < plan.workers.size(); ++rank) {
    int64_t memory = 0;
    for (const program::WorkerProfile& worker : request.cluster.workers) {
      if (worker.worker == plan.workers[rank]) {
        memory = worker.memory_bytes;
      }
    }
    const Simulation& simulation = outcome.simulation;
    const int64_t peak = rank < simulation.peak_bytes.size() ? simulation.peak_bytes[rank] : 0;
    text += fmt::format("  {}: memory {} of {}", plan.workers[rank], Bytes(peak),
                        memory == 0 ? "unlimited" : Bytes(memory));
    if (rank < simulation.busy.size() && simulation.step_seconds > 0) {
      text += fmt::format(", busy {:.1f} %", 100 * simulation.busy[rank] / simulation.step_seconds);
    }
    if (rank < plan.predicted_process_bytes.size()) {
      // It is not known to the byte.
      text += fmt::format(", process {}", Bytes(plan.predicted_process_bytes[rank] >> 20 << 20));
    }
    text += '\n';
  }
  return text;
}

}  // namespace

std::string Explain(const SearchRequest& request, const SearchOutcome& outcome) {
  std::string text = program::Describe(outcome.plan, *request.graph);
  if (!text.empty() && text.back() != '\n') {
    text += '\n';
  }
  const double seconds = outcome.plan.predicted_step_seconds;
  text += fmt::format("predicted step: {:.6g} s{}\n", seconds,
                      outcome.simulated ? "" : " (estimated by stage)");
  text += fmt::format("fraction of the workers' summed speeds: {:.1f} %\n",
                      seconds > 0 ? 100 * outcome.bound_seconds / seconds : 0);
  if (outcome.simulated) {
    text += fmt::format("gradient reduction not hidden: {:.3g} s\n",
                        outcome.simulation.exposed_reduction_seconds);
  }
  text += "workers:\n" + WorkerLines(request, outcome);
  if (!outcome.plan.IdleWorkers().empty()) {
    text += fmt::format("left out, because the step is faster without them: {}\n",
                        outcome.plan.IdleWorkers().size());
  }
  for (const Alternative& other : outcome.alternatives) {
    text += fmt::format("not chosen: {} pipelines, {} workers idle: {:.6g} s ({:+.1f} %): {}\n",
                        other.plan.pipelines.size(), other.plan.IdleWorkers().size(),
                        other.step_seconds, 100 * (other.step_seconds / seconds - 1), other.why);
  }
  text += "contention of several workers for one host's cores is not modelled\n";
  return text;
}

}  // namespace heddle::planner
