#include "elastic/control/membership/quarantine.h"

#include <algorithm>

namespace heddle::elastic {

std::optional<Quarantine::HoldOff> Quarantine::Lose(const std::string& name,
                                                    const QuarantinePolicy& policy,
                                                    Time now) {
  Prune(policy, now);
  const auto found = lives_.find(name);
  if (found == lives_.end() || !found->second.joined) {
    return std::nullopt;
  }
  Life& life = found->second;
  const bool is_short = now - *life.joined < policy.short_life;
  life.joined.reset();
  life.lost = now;
  if (!is_short) {
    lives_.erase(found);
    return std::nullopt;
  }
  if (++life.short_lives == 1) {
    return std::nullopt;
  }
  life.pause = std::clamp(2 * life.pause, policy.first, policy.longest);
  return HoldOff{life.pause, life.short_lives};
}

std::optional<Quarantine::HoldOff> Quarantine::Find(const std::string& name, Time now) const {
  const auto found = lives_.find(name);
  if (found == lives_.end() || found->second.joined) {
    return std::nullopt;
  }
  const Duration left = found->second.lost + found->second.pause - now;
  if (left <= Duration::zero()) {
    return std::nullopt;
  }
  return HoldOff{left, found->second.short_lives};
}

int Quarantine::CountAt(Time now) const {
  return static_cast<int>(std::count_if(lives_.begin(), lives_.end(), [&](const auto& entry) {
    return Find(entry.first, now).has_value();
  }));
}

// Forgets workers that stay away for longer than their pause plus the length of a short life.
void Quarantine::Prune(const QuarantinePolicy& policy, Time now) {
  std::erase_if(lives_, [&](const auto& entry) {
    const Life& life = entry.second;
    return !life.joined && now - life.lost >= life.pause + policy.short_life;
  });
}

}  // namespace heddle::elastic
