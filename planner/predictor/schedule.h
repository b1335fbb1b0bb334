/// \file
/// The discrete-event core of the simulator: lists of priced actions, one list a worker, run
/// against the resources they share. Programs (simulator.h) and whole stages (estimate.h) are both
/// reduced to it, so that coarse and exact prediction follow the same rules.
///
/// Rules: a worker computes serially. Sending is asynchronous; the outgoing side of the sender and
/// the incoming side of the receiver carry one message at a time: a message starts when it was
/// produced and both are free, occupies them for bytes / bandwidth, and arrives one latency later.
/// Reductions, and the exchanges of a stage's group, each have a lane: in it they run one at a
/// time, in program order, and start when all members have issued them; the lanes do not slow each
/// other. The vote waits for all workers, reductions and exchanges. Several workers of one host
/// that share its cores are priced as if each had its own: contention for cores is not modelled.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "comm/cost/cost.h"

namespace heddle::planner {

/// One action of a worker.
struct Action {
  /// kCollect issues a collective, kAwait waits for its end.
  enum class Kind : uint8_t {
    kCompute,
    kSend,
    kRecv,
    kCollect,
    kAwait,
    kVote
  } kind = Kind::kCompute;
  double seconds = 0;    ///< Time on the worker itself, before the action takes effect.
  int peer = -1;         ///< kSend: the receiver.
  int message = -1;      ///< kSend, kRecv: dense number of the message.
  int64_t bytes = 0;     ///< kSend.
  int collective = -1;   ///< kCollect, kAwait: index into Schedule::collectives.
  int instruction = -1;  ///< Index in the worker's Program, for the timeline.
};

enum class Lane : uint8_t { kReductions, kExchanges };
inline constexpr size_t kLanes = 2;

/// A reduction of gradients, or an exchange, among workers.
struct Collective {
  Lane lane = Lane::kReductions;
  std::vector<int> members;  ///< Ranks.
  double seconds = 0;
};

/// The actions of all workers in one step.
struct Schedule {
  std::vector<std::vector<Action>> workers;  ///< By worker, in order.
  std::vector<Collective> collectives;
  int messages = 0;  ///< Number of messages.
  double vote_seconds = 0;
};

/// An interval of a worker's time.
struct TimelineEntry {
  int worker = 0;
  int instruction = -1;
  double start = 0;  ///< When the worker reached the action, waiting included.
  double end = 0;
};

/// The times of one step; times are in seconds from its begin.
struct ScheduleTimes {
  double step_seconds = 0;     ///< When the last worker has finished.
  double vote_seconds_at = 0;  ///< When the vote was complete; 0 without a vote.
  std::vector<double> busy;    ///< By worker: time of computing.
  /// By worker: time of waiting for messages, exchanges and the vote.
  std::vector<double> waiting;
  std::vector<double> finish;      ///< By worker: when it has finished.
  std::vector<double> sent_bytes;  ///< By worker: bytes of point-to-point messages.
  /// Time from the last worker's vote to the end of the last reduction.
  double exposed_reduction_seconds = 0;
  std::vector<TimelineEntry> timeline;  ///< Empty unless requested.
};

/// Runs the schedule on the links. `timeline`: fills in ScheduleTimes::timeline. Cost:
/// O(actions · log workers). Thread: pure. Errors: kInvalidArgument (fewer links than workers),
/// kInternal (workers wait for each other for ever: a broken set of Programs).
Result<ScheduleTimes> RunSchedule(const Schedule& schedule,
                                  const comm::LinkTable& links,
                                  bool timeline = false);

}  // namespace heddle::planner
