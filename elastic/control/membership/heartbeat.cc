// Records the heartbeats of workers.
#include <algorithm>

#include "elastic/control/membership/roster.h"
#include "elastic/protocol/awaited.h"

namespace heddle::elastic {

void Worker::Take(const wire::Heartbeat& message, Duration profile_timeout, Time now) {
  applied_step = message.applied_step();
  standing = message.standing();
  move.all = std::max<int64_t>(0, message.bytes_to_move());
  move.moved = std::clamp<int64_t>(message.moved_bytes(), 0, move.all);
  waits.changed_at = message.waits() == waits.any ? waits.changed_at : now;
  waits.any = message.waits();
  waits.generation = message.waits_generation();
  if (message.progress() > progress) {
    progress = message.progress();
    progressed_at = now;
    if (profiling_until) {
      profiling_until = now + profile_timeout;
    }
  }
}

void Roster::TakeHeartbeat(const std::string& name,
                           const wire::Heartbeat& message,
                           Duration profile_timeout,
                           Time now) {
  Worker& worker = workers_.at(name);
  worker.Take(message, profile_timeout, now);
  worker.waits.names.clear();
  const auto count = std::min<size_t>(static_cast<size_t>(message.waits_for_size()), kMaxAwaited);
  for (size_t i = 0; i < count; ++i) {
    const std::string& other = message.waits_for(static_cast<int>(i));
    if (other != name && workers_.count(other) > 0) {
      worker.waits.names.push_back(other);
    }
  }
}

}  // namespace heddle::elastic
