/// \file
/// The measurements that the coordinator requests of this worker: the profile of its device, and
/// its links to other workers.
#pragma once

#include <cstdint>
#include <optional>

#include "elastic/member/member_outbox.h"

namespace heddle::elastic {

/// The requested measurements and their results. Thread: one caller at a time. A copy is an
/// independent machine.
class Measurements {
 public:
  /// Begins to measure, once the job is applied; starts a requested profile.
  void Begin(MemberOutbox& out);

  /// Starts measuring the profile, or resends it if it is known.
  void AskForProfile(MemberOutbox& out);
  /// Sends the measured profile; after an error the worker leaves.
  void TakeProfile(const ProfileMeasured& event, MemberOutbox& out);
  /// Starts measuring links for a request that is newer than the last, or resends the result if it
  /// is the last. Ignores older requests, and all of them before Begin.
  void AskForLinks(const wire::MeasureLinks& request, MemberOutbox& out);
  /// Sends the result of the newest request, and drops that of an older one.
  void TakeLinks(const wire::LinksMeasured& answer, MemberOutbox& out);

  /// Resends the results that the coordinator may not have received.
  void Resend(MemberOutbox& out) const;

 private:
  bool possible_ = false;  ///< Begin was called.
  bool profile_wanted_ = false;
  bool profiling_ = false;
  std::optional<wire::Profiled> profile_;
  int64_t links_request_ = 0;  ///< Number of the newest request.
  std::optional<wire::LinksMeasured> links_;
};

}  // namespace heddle::elastic
