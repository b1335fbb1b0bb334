#include "tests/elastic/simulation/coordinator/action_text.h"

#include <fmt/format.h>

namespace heddle::elastic {
namespace {

struct ActionText {
  std::string operator()(const Persist& action) const {
    const DurableState& state = action.state;
    std::string text =
        fmt::format("persist {} {} {} {} {} {}", state.generation_counter, state.known_step,
                    state.restarts, state.next_worker_number, state.finished, state.failed);
    if (state.held) {
      text += fmt::format(" held {} {}", state.held->number, state.held->plan.plan_json);
      for (const auto& [name, incarnation] : state.held->members) {
        text += " " + name + incarnation;
      }
    }
    for (const auto& [generation, source] : state.snapshots) {
      text += fmt::format(" {}:{}", generation, source.last_step);
    }
    for (const auto& [name, worker] : state.workers) {
      text += " " + name + worker.incarnation + worker.profile_json;
    }
    for (const int64_t step : state.checkpoints) {
      text += fmt::format(" {}", step);
    }
    return text;
  }
  std::string operator()(const Send& action) const {
    return fmt::format("send {} ", action.connection) + action.message.SerializeAsString();
  }
  std::string operator()(const Close& action) const {
    return fmt::format("close {}", action.connection);
  }
  std::string operator()(const FindPlan& action) const {
    const PlanRequest& request = action.request;
    std::string text = fmt::format("find {} {} {} {} ", request.id, request.generation,
                                   request.current_runs, request.current_plan_json) +
                       request.links.SerializeAsString();
    for (const Candidate& candidate : request.candidates) {
      text += fmt::format(" {} {} {}", candidate.name, candidate.slowdown, candidate.holds_state);
    }
    return text;
  }
  std::string operator()(const CommitCheckpoint& action) const {
    return fmt::format("commit {} {} {} {} {}", action.step, action.generation,
                       fmt::join(action.parts, "|"), action.plan_json,
                       action.facts.validation_loss.value_or(-1));
  }
  std::string operator()(const NoteValidation& action) const {
    return fmt::format("validation {} {}", action.step, action.loss);
  }
  std::string operator()(const AbandonCheckpoint& action) const {
    return fmt::format("abandon {} {}", action.step, action.generation);
  }
  std::string operator()(const WriteLog& action) const { return FormatLogEvent(action.event, 0); }
  std::string operator()(const ListWorkers& action) const {
    std::string text = "list";
    for (const ListWorkers::Entry& entry : action.workers) {
      text += fmt::format(" {} {} {}", entry.name, entry.pid, entry.host);
    }
    return text;
  }
  std::string operator()(const WorkerGone& action) const {
    return fmt::format("gone {} {}", action.worker, action.pid);
  }
  std::string operator()(const EndJob& action) const {
    return fmt::format("end {} {} {}", action.ok, action.bad_input, action.reason);
  }
};

}  // namespace

std::string TextOf(const CoordinatorAction& action) {
  return std::visit(ActionText(), action);
}

}  // namespace heddle::elastic
