#include "elastic/control/policy.h"

namespace heddle::elastic {

bool Job::OnProcessor(const std::string& worker) const {
  const auto own = devices.find(worker);
  const auto found = own == devices.end() ? devices.find("") : own;
  return found == devices.end() || found->second == "cpu";
}

bool CheckpointDue(const JobPolicy& policy, int64_t step) {
  if (step <= 0) {
    return false;
  }
  return (policy.checkpoint_every > 0 && step % policy.checkpoint_every == 0) ||
         (policy.final_checkpoint && step == policy.total_steps);
}

bool DigestsDue(const JobPolicy& policy, int64_t step) {
  return policy.digest_every > 0 && step > 0 &&
         (step % policy.digest_every == 0 || CheckpointDue(policy, step));
}

bool ValidationDue(const JobPolicy& policy, int64_t step) {
  if (step <= 0) {
    return false;
  }
  return (policy.validate_every > 0 && step % policy.validate_every == 0) ||
         (policy.final_validation && step == policy.total_steps);
}

}  // namespace heddle::elastic
