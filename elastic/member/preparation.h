/// \file
/// The newest plan that this worker is to prepare for, and its reply.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "elastic/member/member_outbox.h"

namespace heddle::elastic {

/// The preparation for the next generation. Thread: one caller at a time. A copy is an independent
/// machine.
class Preparation {
 public:
  /// Takes a plan that is newer than the last: lowers it, or replies at once if `worker`, the name
  /// of this worker, is not in it. A plan that is not newer changes nothing; if it is the last one,
  /// the reply is resent.
  void Take(const wire::Prepare& message, const std::string& worker, MemberOutbox& out);
  /// Replies with the outcome of lowering the newest plan.
  void TakeLowered(const PlanLowered& event, MemberOutbox& out);
  /// Drops a plan of a generation below `fence`.
  void DropBelow(int64_t fence);

  /// The plan of `generation`; null if the newest plan is of another one.
  const wire::Prepare* Find(int64_t generation) const;
  /// The worker's rank in the newest plan; -1: it is not in it. Precondition: there is a plan.
  int RankOf(const std::string& worker) const;

  /// Resends the reply that the coordinator may not have received.
  void Resend(MemberOutbox& out) const { out.Send(answer_); }

 private:
  std::optional<wire::Prepare> plan_;
  std::optional<wire::Prepared> answer_;
};

}  // namespace heddle::elastic
