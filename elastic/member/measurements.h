/// \file
/// What this worker measures when it is asked to: the profile of its device, and links to others.
#pragma once

#include <cstdint>
#include <optional>

#include "elastic/member/member_outbox.h"

namespace heddle::elastic {

/// Thread: one caller at a time. A copy is an independent machine.
class Measurements {
 public:
  /// The job is applied: measuring is possible from now on.
  void Begin(MemberOutbox& out);

  void AskForProfile(MemberOutbox& out);
  void TakeProfile(const ProfileMeasured& event, MemberOutbox& out);
  /// The newest request counts; older ones are moot.
  void AskForLinks(const wire::MeasureLinks& request, MemberOutbox& out);
  void TakeLinks(const wire::LinksMeasured& answer, MemberOutbox& out);

  /// What the coordinator may not have heard.
  void SayAgain(MemberOutbox& out) const;

 private:
  bool possible_ = false;
  bool profile_wanted_ = false;
  bool profiling_ = false;
  std::optional<wire::Profiled> profile_;
  int64_t links_request_ = 0;
  std::optional<wire::LinksMeasured> links_;
};

}  // namespace heddle::elastic
