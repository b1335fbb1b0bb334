/// \file
/// The newest plan that this worker is to be ready for, and its answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "elastic/member/member_outbox.h"

namespace heddle::elastic {

/// Thread: one caller at a time. A copy is an independent machine.
class Preparation {
 public:
  /// One that is not newer changes nothing; its answer is said again. `worker`: this one's name.
  void Take(const wire::Prepare& message, const std::string& worker, MemberOutbox& out);
  void TakeLowered(const PlanLowered& event, MemberOutbox& out);
  /// Generations below are over.
  void DropBelow(int64_t fence);

  /// Null: the newest plan is of another generation.
  const wire::Prepare* Find(int64_t generation) const;
  /// In the newest plan; -1: the worker is not in it.
  int RankOf(const std::string& worker) const;

  /// What the coordinator may not have heard.
  void SayAgain(MemberOutbox& out) const { out.Say(answer_); }

 private:
  std::optional<wire::Prepare> plan_;
  std::optional<wire::Prepared> answer_;
};

}  // namespace heddle::elastic
