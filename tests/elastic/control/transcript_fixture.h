/// \file
/// The fixture of a coordinator whose workers a test plays, with all its decisions as lines of
/// text.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include "elastic/control/coordinator/coordinator.h"

namespace heddle::elastic {

/// Breaks a line into lines of at most 111 columns, behind a comma or at a space.
inline std::string Fold(std::string line) {
  constexpr size_t kColumns = 111;
  std::string folded;
  std::string indent;
  while (indent.size() + line.size() > kColumns) {
    const size_t at = line.find_last_of(", ", kColumns - indent.size() - 1);
    if (at == std::string::npos || at == 0) {
      break;
    }
    folded += indent + line.substr(0, line[at] == ',' ? at + 1 : at) + "\n";
    line = line.substr(at + 1);
    indent = "    ";
  }
  return folded + indent + line;
}

inline std::string Json(const google::protobuf::Message& message) {
  std::string text;
  EXPECT_TRUE(google::protobuf::util::MessageToJsonString(message, &text).ok());
  return text;
}

inline std::string Text(const DurableState& state) {
  std::string text = fmt::format("{} {} {} {} counter {} step {} life {} next {} checkpoints [{}]",
                                 state.job_id, state.job_yaml, state.secret, state.output_folder,
                                 state.generation_counter, state.known_step, state.restarts,
                                 state.next_worker_number, fmt::join(state.checkpoints, " "));
  for (const auto& [name, worker] : state.workers) {
    text += fmt::format(" {}({} {} {} {})", name, worker.incarnation[0], worker.host,
                        worker.profile_json, worker.failure_domain);
  }
  if (state.held) {
    text += fmt::format(" held {} {}:", state.held->number, state.held->plan.plan_json);
    for (const auto& [name, incarnation] : state.held->members) {
      text += fmt::format(" {}={}", name, incarnation[0]);
    }
  }
  for (const auto& [generation, source] : state.snapshots) {
    text += fmt::format(" snapshots {} {} [{}]{}", generation, source.plan_json,
                        fmt::join(source.owners, " "),
                        source.last_step == INT64_MAX ? "" : fmt::format("<={}", source.last_step));
  }
  return text + (state.finished ? " finished" : "") + (state.failed.empty() ? "" : " failed: ") +
         state.failed;
}

inline std::string Text(const PlanRequest& request) {
  std::string text = fmt::format("{} of {}:", request.id, request.generation);
  for (const Candidate& candidate : request.candidates) {
    text += fmt::format(" {}({} {} {}{})", candidate.name, candidate.host, candidate.profile_json,
                        candidate.slowdown, candidate.holds_state ? " holds" : "");
  }
  return text + fmt::format(" links {} now '{}'{}", Json(request.links), request.current_plan_json,
                            request.current_runs ? " runs" : "");
}

class TranscriptTest : public testing::Test {
 protected:
  TranscriptTest() {
    job_.id = "job";
    job_.yaml = "yaml";
    job_.secret = "secret";
    job_.output_folder = "/out";
    job_.failure_domains["b"] = "rack-b";
    job_.emulation["b"].set_speed(0.5);
    job_.policy.total_steps = 4;
    job_.policy.checkpoint_every = 2;
    job_.policy.validate_every = 2;
    job_.policy.replicate_every = 1;
    job_.policy.initial_workers = 2;
  }

  void Line(const std::string& line) { said_.push_back(Fold(line)); }
  void Note(const CoordinatorAction& action) {
    if (const auto* send = std::get_if<Send>(&action)) {
      Line(fmt::format("{} < {}", names_[send->connection], Json(send->message)));
      if (send->message.has_start()) {
        start_step_ = send->message.start().applied_step();
      }
    } else if (const auto* persist = std::get_if<Persist>(&action)) {
      Line("store " + Text(persist->state));
    } else if (const auto* close = std::get_if<Close>(&action)) {
      Line("close " + names_[close->connection]);
    } else if (const auto* find = std::get_if<FindPlan>(&action)) {
      Line("plan " + Text(find->request));
      asked_ = find->request;
    } else if (const auto* commit = std::get_if<CommitCheckpoint>(&action)) {
      Line(fmt::format("commit {} of {} [{}] {} {}", commit->step, commit->generation,
                       fmt::join(commit->parts, " "), commit->plan_json,
                       commit->facts.validation_loss.value_or(-1)));
    } else if (const auto* note = std::get_if<NoteValidation>(&action)) {
      Line(fmt::format("note {} {}", note->step, note->loss));
    } else if (const auto* abandon = std::get_if<AbandonCheckpoint>(&action)) {
      Line(fmt::format("abandon {} of {}", abandon->step, abandon->generation));
    } else if (const auto* log = std::get_if<WriteLog>(&action)) {
      const std::string text = FormatLogEvent(log->event, 0);
      Line("log " + text.substr(text.find("\"event\": ") + 9));
    } else if (const auto* gone = std::get_if<WorkerGone>(&action)) {
      Line(fmt::format("gone {} {}", gone->worker, gone->pid));
    } else if (const auto* end = std::get_if<EndJob>(&action)) {
      Line(fmt::format("end {} {} {}", end->ok, end->bad_input, end->reason));
    } else if (const auto* list = std::get_if<ListWorkers>(&action)) {
      std::string text = "list";
      for (const ListWorkers::Entry& entry : list->workers) {
        text +=
            fmt::format(" {}({} {} {})", entry.name, entry.pid, entry.metrics_address, entry.host);
      }
      Line(text);
    }
  }
  void Tell(const CoordinatorEvent& event) {
    for (const CoordinatorAction& action : coordinator_.Handle(event, now_)) {
      Note(action);
    }
    const Status sound = coordinator_.CheckInvariants();
    EXPECT_TRUE(sound.ok()) << sound.ToString();
  }
  void From(const std::string& name, const std::function<void(wire::FromWorker&)>& fill) {
    Received event;
    event.connection = connections_.at(name);
    fill(event.message);
    Tell(event);
  }
  static void Describe(const std::string& name, wire::Hello& hello) {
    hello.set_name(name);
    hello.set_incarnation(std::string(16, static_cast<char>(name[0] - 'a' + 'A')));
    hello.set_host("host-" + name);
    hello.set_network("net-" + name);
    hello.set_pid(name[0]);
    hello.set_protocol_version(kProtocolVersion);
    (*hello.mutable_arithmetic())["processor"] = "EPYC";
    hello.set_data_address("data-" + name);
    hello.set_probe_address("probe-" + name);
    hello.set_metrics_address("metrics-" + name);
  }
  void Hello(const std::string& name, const std::function<void(wire::Hello&)>& more = {}) {
    connections_[name] = next_connection_;
    names_[next_connection_++] = name;
    From(name, [&](wire::FromWorker& message) {
      Describe(name, *message.mutable_hello());
      if (more) {
        more(*message.mutable_hello());
      }
    });
  }
  void Profiled(const std::string& name) {
    From(name, [&](wire::FromWorker& message) {
      message.mutable_profiled()->set_profile_json("\"" + name + "\"");
    });
  }
  // Answers the request for a plan; every candidate is a member with a parameter of its own.
  void Plan() {
    PlanOutcome outcome;
    outcome.request_id = asked_.id;
    outcome.plan_json = fmt::format("\"plan {}\"", asked_.generation);
    for (const Candidate& candidate : asked_.candidates) {
      outcome.parameters.push_back({outcome.parameter_count++});
      outcome.program_hashes.push_back(7);
      outcome.members.push_back(candidate.name);
    }
    outcome.predicted_step_seconds = 0.25;
    outcome.current_step_seconds = 1;
    members_ = outcome.members;
    Tell(Planned{outcome});
  }
  void Prepared(const std::string& name) {
    From(name, [&](wire::FromWorker& message) {
      message.mutable_prepared()->set_generation(asked_.generation);
      message.mutable_prepared()->set_program_hash(7);
    });
  }
  void Ready(const std::string& name, int64_t bytes = 0) {
    From(name, [&](wire::FromWorker& message) {
      wire::Ready& ready = *message.mutable_ready();
      ready.set_generation(asked_.generation);
      ready.set_seconds(0.5);
      wire::Certificate& certificate = *ready.mutable_certificate();
      certificate.set_step(start_step_);
      certificate.add_parameters(static_cast<int32_t>(
          std::find(members_.begin(), members_.end(), name) - members_.begin()));
      certificate.add_digests(0);
      if (bytes > 0) {
        (*ready.mutable_moved_bytes())["checkpoint"] = bytes;
        (*ready.mutable_moved_bytes())["memory"] = bytes + 1;
      }
    });
  }
  void Step(const std::string& from, int64_t step) {
    From(from, [&](wire::FromWorker& message) {
      wire::StepRecord& record = *message.mutable_step_done()->add_records();
      record.set_step(step);
      record.set_generation(asked_.generation);
      record.set_loss(8 - static_cast<double>(step));
      record.set_gradient_norm(0.125);
      record.set_tokens(1024);
      record.set_seconds(0.5);
      record.set_first_sample(16 * step);
      record.set_samples(16);
    });
  }
  void Saved(const std::string& from, int64_t step, double stall) {
    From(from, [&](wire::FromWorker& message) {
      wire::CheckpointPart& part = *message.mutable_checkpoint_part();
      part.set_step(step);
      part.set_generation(asked_.generation);
      part.set_part("part-" + from);
      part.set_stall_seconds(stall);
    });
  }
  void Committed(int64_t step) {
    CheckpointCommitted done{.step = step, .generation = asked_.generation, .status = {}};
    done.bytes = 100;
    done.raw_bytes = 200;
    done.seconds = 0.75;
    Tell(done);
  }
  void Validated(const std::string& from, int64_t step) {
    From(from, [&](wire::FromWorker& message) {
      message.mutable_validation()->set_step(step);
      message.mutable_validation()->set_generation(asked_.generation);
      message.mutable_validation()->set_loss(3.5);
    });
  }
  void Finished(const std::string& from, int64_t step) {
    From(from, [&](wire::FromWorker& message) {
      message.mutable_finished()->set_generation(asked_.generation);
      message.mutable_finished()->set_step(step);
    });
  }
  void Form() {
    Hello("a");
    Tell(Submitted{job_});
    Hello("b");
    Profiled("a");
    Profiled("b");
    Plan();
    Prepared("a");
    Prepared("b");
    Ready("a");
    Ready("b");
  }
  // All lines since the last call.
  std::string Said() { return fmt::format("{}", fmt::join(std::exchange(said_, {}), "\n")); }
  std::string Shown() const { return Fold(Json(coordinator_.StatusAt(now_))); }

  Job job_;
  Time now_{std::chrono::seconds(100)};
  Coordinator coordinator_;
  ConnectionId next_connection_ = 1;
  std::map<std::string, ConnectionId> connections_;
  std::map<ConnectionId, std::string> names_;
  PlanRequest asked_;
  std::vector<std::string> members_;
  int64_t start_step_ = 0;
  std::vector<std::string> said_;
};

}  // namespace heddle::elastic
