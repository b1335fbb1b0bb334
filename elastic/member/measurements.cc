#include "elastic/member/measurements.h"

namespace heddle::elastic {

void Measurements::Begin(MemberOutbox& out) {
  possible_ = true;
  if (profile_wanted_) {
    AskForProfile(out);
  }
}

void Measurements::AskForProfile(MemberOutbox& out) {
  profile_wanted_ = true;
  if (profile_) {
    return out.Send(*profile_);
  }
  if (possible_ && !profiling_) {
    profiling_ = true;
    out.Add(MeasureProfile{});
  }
}

void Measurements::TakeProfile(const ProfileMeasured& event, MemberOutbox& out) {
  profiling_ = false;
  if (!event.status.ok()) {
    return out.LeaveAtOnce("profiling: " + event.status.ToString(), 1);
  }
  profile_.emplace();
  profile_->set_profile_json(event.profile_json);
  profile_->set_data(event.data);
  out.Send(*profile_);
}

void Measurements::AskForLinks(const wire::MeasureLinks& request, MemberOutbox& out) {
  if (!possible_ || request.request() < links_request_) {
    return;
  }
  if (request.request() > links_request_) {
    links_request_ = request.request();
    links_.reset();
    out.Add(ProbeLinks{request});
  } else {
    out.Send(links_);
  }
}

void Measurements::TakeLinks(const wire::LinksMeasured& answer, MemberOutbox& out) {
  if (answer.request() == links_request_) {
    links_ = answer;
    out.Send(*links_);
  }
}

void Measurements::Resend(MemberOutbox& out) const {
  out.Send(profile_);
  out.Send(links_);
}

}  // namespace heddle::elastic
