/// \file
/// The fixture of a coordinator all of whose workers leave.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tests/elastic/control/coordinator_fixture.h"

namespace heddle::elastic {

class CoordinatorSuspendTest : public CoordinatorTest {
 protected:
  void Leave(const std::string& name) {
    From(name, [](wire::FromWorker& message) { message.mutable_leaving()->set_reason("SIGTERM"); });
  }
  void LeaveAll(const std::vector<std::string>& names = {"a", "b"}) {
    for (const std::string& name : names) {
      Leave(name);
    }
  }
  void Stop(int64_t step,
            int64_t generation = 1,
            const std::vector<std::string>& names = {"a", "b"}) {
    for (const std::string& name : names) {
      From(name, [&](wire::FromWorker& message) {
        message.mutable_stopped()->set_generation(generation);
        message.mutable_stopped()->set_applied_step(step);
      });
    }
  }
  void Part(const std::string& name, int64_t step, const std::string& error = "") {
    From(name, [&](wire::FromWorker& message) {
      wire::CheckpointPart& part = *message.mutable_checkpoint_part();
      part.set_step(step);
      part.set_generation(stored_.held->number);
      part.set_part(name);
      part.set_error(error);
    });
  }
  void Commit(int64_t step) {
    ASSERT_THAT(commits_, testing::SizeIs(1));
    CheckpointCommitted event;
    event.step = step;
    event.generation = commits_.back().generation;
    commits_.clear();
    Tell(event);
  }
  // Suspends the job after `step`, with all messages of the workers that this takes.
  void Suspend(int64_t step) {
    LeaveAll();
    Step(step);
    Stop(step);
    Part("a", step);
    Part("b", step);
    Commit(step);
  }
  const LogEvent* Suspended() const {
    const auto found = std::find_if(
        log_.begin(), log_.end(), [](const LogEvent& event) { return event.kind == "suspended"; });
    return found == log_.end() ? nullptr : &*found;
  }
  std::string Reason() const {
    return Suspended() == nullptr ? "none" : std::get<std::string>(*Suspended()->Find("reason"));
  }
  int64_t Field(const char* name) const { return std::get<int64_t>(*Suspended()->Find(name)); }
  // The coordinator's answer to a worker that leaves: "requeue", "release" or "none".
  std::string Answer(const std::string& name) {
    const wire::ToWorker* release = Last(name, wire::ToWorker::kRelease);
    return release == nullptr ? "none" : release->release().requeue() ? "requeue" : "release";
  }
};

}  // namespace heddle::elastic
