/// \file
/// The fixture of a coordinator of three workers that keep snapshots in memory and report them.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/elastic/control/coordinator_fixture.h"

namespace heddle::elastic {

/// The snapshot's generation and step, and the owners, of the parts that a worker holds.
struct Parts {
  int64_t generation = 0;
  int64_t step = 0;
  std::vector<int32_t> owners;
  int64_t raw_bytes = 0;
};

/// Workers a, b and c hold a third of the state each, and two parts of each snapshot, by owner:
/// a holds 0 and 2, b 1 and 0, c 2 and 1.
class SourceTest : public CoordinatorTest {
 protected:
  SourceTest() {
    job_.policy.initial_workers = 3;
    job_.policy.replicate_every = 4;
  }

  void FormThree(bool split = true) {
    Tell(Submitted{job_});
    for (const char* name : {"a", "b", "c"}) {
      Join(name);
    }
    AnswerPlan(split);
    AnswerPrepared(1);
    AnswerReady(members_, 1);
    sent_.clear();
  }
  void StepTo(int64_t from, int64_t last) {
    for (int64_t step = from; step <= last; ++step) {
      Step(step);
    }
  }
  void CommitAt(int64_t step, int64_t raw_bytes = 0) {
    for (const char* name : {"a", "b", "c"}) {
      From(name, [&](wire::FromWorker& message) {
        message.mutable_checkpoint_part()->set_step(step);
        message.mutable_checkpoint_part()->set_generation(1);
      });
    }
    CheckpointCommitted done;
    done.step = step;
    done.generation = 1;
    done.raw_bytes = raw_bytes;
    Tell(done);
  }
  void HaltedWith(const std::string& name,
                  int64_t fence,
                  int64_t applied,
                  const std::vector<Parts>& parts) {
    From(name, [&](wire::FromWorker& message) {
      wire::Halted& halted = *message.mutable_halted();
      halted.set_generation(fence);
      halted.set_held_generation(1);
      halted.set_applied_step(applied);
      halted.set_norm_step(applied);
      for (const Parts& held : parts) {
        wire::Halted::Replicas& replicas = *halted.add_replicas();
        replicas.set_generation(held.generation);
        replicas.set_step(held.step);
        replicas.mutable_owners()->Assign(held.owners.begin(), held.owners.end());
        replicas.set_raw_bytes(held.raw_bytes);
      }
    });
  }
  void AnswerReadyWith(const std::vector<std::string>& names,
                       int64_t generation,
                       int64_t bytes,
                       double seconds) {
    for (const std::string& name : names) {
      From(name, [&](wire::FromWorker& message) {
        wire::Ready& ready = *message.mutable_ready();
        ready.set_generation(generation);
        ready.set_seconds(seconds);
        (*ready.mutable_moved_bytes())["memory"] = bytes;
        *ready.mutable_certificate() = CertificateOf(name);
      });
    }
  }
  void Refuse(const std::string& name, int64_t generation) {
    From(name, [&](wire::FromWorker& message) {
      wire::Ready& ready = *message.mutable_ready();
      ready.set_generation(generation);
      ready.set_error("a checksum differs");
      ready.set_source_unreadable(true);
    });
  }
  const wire::Start& Started(const std::string& name) {
    return Last(name, wire::ToWorker::kStart)->start();
  }
  const LogEvent& LastOf(const std::string& kind) const {
    return *std::find_if(log_.rbegin(), log_.rend(),
                         [&](const LogEvent& event) { return event.kind == kind; });
  }
  std::string Chosen() const {
    return std::get<std::string>(*LastOf("recovery_source").Find("chosen"));
  }
  nlohmann::json Candidates() const {
    return nlohmann::json::parse(
        std::get<RawJson>(*LastOf("recovery_source").Find("candidates")).text);
  }
};

}  // namespace heddle::elastic
