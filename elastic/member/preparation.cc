#include "elastic/member/preparation.h"

#include <algorithm>

namespace heddle::elastic {

void Preparation::Take(const wire::Prepare& message, const std::string& worker, MemberOutbox& out) {
  if (plan_ && message.generation() <= plan_->generation()) {
    if (answer_ && answer_->generation() == message.generation()) {
      out.Send(*answer_);
    }
    return;
  }
  plan_ = message;
  answer_.reset();
  if (RankOf(worker) >= 0) {
    return out.Add(LowerPlan{message.generation(), message.plan_json()});
  }
  answer_.emplace();
  answer_->set_generation(message.generation());
  out.Send(*answer_);
}

void Preparation::TakeLowered(const PlanLowered& event, MemberOutbox& out) {
  if (Find(event.generation) == nullptr) {
    return;
  }
  answer_.emplace();
  answer_->set_generation(event.generation);
  answer_->set_program_hash(event.program_hash);
  if (!event.status.ok()) {
    answer_->set_error(event.status.ToString());
  }
  out.Send(*answer_);
}

void Preparation::DropBelow(int64_t fence) {
  if (plan_ && plan_->generation() < fence) {
    plan_.reset();
    answer_.reset();
  }
}

const wire::Prepare* Preparation::Find(int64_t generation) const {
  return plan_ && plan_->generation() == generation ? &*plan_ : nullptr;
}

int Preparation::RankOf(const std::string& worker) const {
  const auto& members = plan_->members();
  const auto found = std::ranges::find(members, worker, &wire::Member::name);
  return found == members.end() ? -1 : static_cast<int>(found - members.begin());
}

}  // namespace heddle::elastic
