/// \file
/// The discrete-event core of the simulator: lists of priced actions, one list a worker, run
/// against the resources they share. Programs (simulator.h) and whole stages (estimate.h) are both
/// reduced to it, so that coarse and exact prediction follow the same rules.
///
/// Rules: a worker computes serially. Sending is asynchronous; the outgoing side of the sender and
/// the incoming side of the receiver carry one message at a time: a message starts when it was
/// produced and both are free, occupies them for bytes / bandwidth, and arrives one latency later.
/// Reductions run one at a time, in program order, on each worker's communication thread, and start
/// when all members have issued them. The vote waits for all workers and all reductions. Several
/// workers of one host that share its cores are priced as if each had its own: contention for cores
/// is not modelled.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "comm/cost/cost.h"

namespace heddle::planner {

struct Action {
  enum class Kind : uint8_t { kCompute, kSend, kRecv, kReduce, kVote } kind = Kind::kCompute;
  double seconds = 0;    ///< Of the worker itself, before the action takes effect.
  int peer = -1;         ///< kSend: the receiver.
  int message = -1;      ///< kSend, kRecv: dense number of the message.
  int64_t bytes = 0;     ///< kSend.
  int reduction = -1;    ///< kReduce: index into Schedule::reductions.
  int instruction = -1;  ///< For the timeline: index in the worker's Program.
};

struct Reduction {
  std::vector<int> members;  ///< Ranks, ascending.
  double seconds = 0;
};

struct Schedule {
  std::vector<std::vector<Action>> workers;
  std::vector<Reduction> reductions;
  int messages = 0;
  double vote_seconds = 0;
};

/// An interval of a worker's time.
struct TimelineEntry {
  int worker = 0;
  int instruction = -1;
  double start = 0;  ///< When the worker reached the action, waiting included.
  double end = 0;
};

struct ScheduleTimes {
  double step_seconds = 0;         ///< Until the last worker has finished.
  double vote_seconds_at = 0;      ///< When the vote was complete; 0 without a vote.
  std::vector<double> busy;        ///< By worker: seconds of computing.
  std::vector<double> waiting;     ///< By worker: for messages and for the vote.
  std::vector<double> finish;      ///< By worker.
  std::vector<double> sent_bytes;  ///< By worker, point to point.
  double exposed_reduction_seconds =
      0;  ///< From the last worker's vote to the end of the last reduction.
  std::vector<TimelineEntry> timeline;  ///< When asked for.
};

/// Cost: O(actions · log workers). Thread: pure.
/// Errors: kInternal when the lists wait for each other (a broken set of Programs).
Result<ScheduleTimes> RunSchedule(const Schedule& schedule,
                                  const comm::LinkTable& links,
                                  bool timeline = false);

}  // namespace heddle::planner
