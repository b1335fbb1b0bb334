/// \file
/// The fixture of a coordinator whose workers a test plays, message by message.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "elastic/control/coordinator/coordinator.h"

namespace heddle::elastic {

/// A test of a coordinator. Workers are named; every message arrives at once; every plan gives each
/// worker all parameters, or one of its own.
class CoordinatorTest : public testing::Test {
 protected:
  CoordinatorTest() {
    job_.id = "job";
    job_.policy.total_steps = 100;
    job_.policy.checkpoint_every = 10;
    job_.policy.initial_workers = 2;
  }

  void Tell(const CoordinatorEvent& event) {
    for (const CoordinatorAction& action : coordinator_.Handle(event, now_)) {
      if (const auto* send = std::get_if<Send>(&action)) {
        sent_[names_[send->connection]].push_back(send->message);
        if (send->message.has_start()) {
          start_step_ = send->message.start().applied_step();
        }
      } else if (const auto* log = std::get_if<WriteLog>(&action)) {
        log_.push_back(log->event);
      } else if (const auto* persist = std::get_if<Persist>(&action)) {
        stored_ = persist->state;
      } else if (const auto* find = std::get_if<FindPlan>(&action)) {
        request_ = find->request;
      } else if (const auto* commit = std::get_if<CommitCheckpoint>(&action)) {
        commits_.push_back(*commit);
      } else if (const auto* note = std::get_if<NoteValidation>(&action)) {
        notes_.push_back(*note);
      } else if (const auto* end = std::get_if<EndJob>(&action)) {
        end_ = *end;
      }
    }
    const Status sound = coordinator_.CheckInvariants();
    EXPECT_TRUE(sound.ok()) << sound.ToString();
  }

  template <typename Fill>
  void From(const std::string& name, Fill fill) {
    Received event;
    event.connection = connections_.at(name);
    fill(event.message);
    Tell(event);
  }

  void Hello(const std::string& name, const std::function<void(wire::Hello&)>& more = {}) {
    connections_[name] = next_connection_;
    names_[next_connection_++] = name;
    From(name, [&](wire::FromWorker& message) {
      wire::Hello& hello = *message.mutable_hello();
      hello.set_name(name);
      hello.set_incarnation(std::string(16, name.empty() ? '?' : name.back()));
      hello.set_host("host-" + name);
      hello.set_protocol_version(kProtocolVersion);
      (*hello.mutable_arithmetic())["processor"] = "EPYC";
      hello.set_data_address("address of " + name);
      if (more) {
        more(hello);
      }
    });
  }
  void Join(const std::string& name) {
    Hello(name);
    From(name,
         [](wire::FromWorker& message) { message.mutable_profiled()->set_profile_json("{}"); });
  }

  // Answers the request for a plan with one in which every candidate is a member; `split` gives
  // each of them a parameter of its own.
  void AnswerPlan(bool split = false) {
    ASSERT_TRUE(request_.has_value());
    PlanOutcome outcome;
    outcome.request_id = request_->id;
    outcome.plan_json = "plan " + std::to_string(request_->generation);
    const auto count = static_cast<int32_t>(request_->candidates.size());
    for (int32_t i = 0; i < count; ++i) {
      outcome.members.push_back(request_->candidates[static_cast<size_t>(i)].name);
      outcome.program_hashes.push_back(static_cast<uint64_t>(i));
      outcome.parameters.push_back(split ? std::vector<int32_t>{i} : std::vector<int32_t>{0});
    }
    outcome.parameter_count = split ? count : 1;
    outcome.predicted_step_seconds = 1.0 / count;
    outcome.current_step_seconds = 1;
    request_.reset();
    TakePlan(outcome);
  }
  void TakePlan(const PlanOutcome& outcome) {
    members_ = outcome.members;
    plan_ = outcome;
    Tell(Planned{outcome});
  }
  void AnswerPrepared(int64_t generation) {
    for (size_t i = 0; i < members_.size(); ++i) {
      From(members_[i], [&](wire::FromWorker& message) {
        message.mutable_prepared()->set_generation(generation);
        message.mutable_prepared()->set_program_hash(i);
      });
    }
  }
  void AnswerReady(const std::vector<std::string>& names, int64_t generation) {
    for (const std::string& name : names) {
      From(name, [&](wire::FromWorker& message) {
        message.mutable_ready()->set_generation(generation);
        *message.mutable_ready()->mutable_certificate() = CertificateOf(name);
      });
    }
  }
  // The certificate of a worker for the state that the last Start named, with its parameters in the
  // last plan, and the same digests as all other workers.
  wire::Certificate CertificateOf(const std::string& name) const {
    wire::Certificate certificate;
    certificate.set_step(start_step_);
    const auto rank = static_cast<size_t>(
        std::find(plan_.members.begin(), plan_.members.end(), name) - plan_.members.begin());
    if (rank < plan_.parameters.size()) {
      for (const int32_t parameter : plan_.parameters[rank]) {
        certificate.add_parameters(parameter);
        certificate.add_digests(static_cast<uint64_t>(100 + parameter));
      }
    }
    return certificate;
  }
  void Form(bool split = false) {
    Tell(Submitted{job_});
    Join("a");
    Join("b");
    AnswerPlan(split);
    AnswerPrepared(1);
    AnswerReady(members_, 1);
    sent_.clear();
  }
  // Worker a reports steps from `first` on, of the generation in force, with these durations.
  void StepsOf(int64_t first, const std::vector<double>& seconds) {
    for (const double each : seconds) {
      From("a", [&](wire::FromWorker& message) {
        wire::StepRecord& record = *message.mutable_step_done()->add_records();
        record.set_step(first++);
        record.set_generation(stored_.held->number);
        record.set_loss(0.5);
        record.set_seconds(each);
      });
    }
  }
  // The worker `from` reports a step of `generation`; nullopt: of the generation in force.
  void Step(int64_t step,
            const std::string& from = "a",
            std::optional<int64_t> generation = std::nullopt) {
    From(from, [&](wire::FromWorker& message) {
      wire::StepRecord& record = *message.mutable_step_done()->add_records();
      record.set_step(step);
      record.set_generation(generation.value_or(stored_.held ? stored_.held->number : 0));
      record.set_loss(0.5);
    });
  }
  void Halted(
      const std::string& name, int64_t fence, int64_t applied, int64_t norm_step, bool voted) {
    From(name, [&](wire::FromWorker& message) {
      wire::Halted& halted = *message.mutable_halted();
      halted.set_generation(fence);
      halted.set_held_generation(1);
      halted.set_applied_step(applied);
      halted.set_norm_step(norm_step);
      halted.set_norm(0.25);
      halted.set_voted(voted);
    });
  }
  void Wait(double seconds, const std::vector<std::string>& alive) {
    for (double waited = 0; waited < seconds; waited += 0.1) {
      now_ += std::chrono::milliseconds(100);
      for (const std::string& name : alive) {
        From(name, [](wire::FromWorker& message) { message.mutable_heartbeat(); });
      }
      Tell(Ticked());
    }
  }

  // The last message of a kind that a worker got; null: there was none.
  const wire::ToWorker* Last(const std::string& name, wire::ToWorker::KindCase kind) {
    const std::vector<wire::ToWorker>& messages = sent_[name];
    const auto found =
        std::find_if(messages.rbegin(), messages.rend(),
                     [&](const wire::ToWorker& message) { return message.kind_case() == kind; });
    return found == messages.rend() ? nullptr : &*found;
  }
  // The last logged event of a kind; fails the test if there is none.
  const LogEvent& Logged(const std::string& kind) const {
    const auto found = std::find_if(log_.rbegin(), log_.rend(),
                                    [&](const LogEvent& event) { return event.kind == kind; });
    EXPECT_NE(found, log_.rend()) << kind << " was not logged";
    static const LogEvent kNone;
    return found == log_.rend() ? kNone : *found;
  }
  int64_t Count(const std::string& kind) const {
    return std::count_if(log_.begin(), log_.end(),
                         [&](const LogEvent& event) { return event.kind == kind; });
  }

  Job job_;
  Time now_{std::chrono::seconds(100)};
  Coordinator coordinator_;
  ConnectionId next_connection_ = 1;
  std::map<std::string, ConnectionId> connections_;
  std::map<ConnectionId, std::string> names_;
  std::map<std::string, std::vector<wire::ToWorker>> sent_;
  std::vector<LogEvent> log_;
  std::vector<CommitCheckpoint> commits_;
  std::vector<NoteValidation> notes_;
  std::vector<std::string> members_;
  PlanOutcome plan_;
  int64_t start_step_ = 0;  ///< The step of the last Start.
  std::optional<PlanRequest> request_;
  std::optional<EndJob> end_;
  DurableState stored_;
};

}  // namespace heddle::elastic
