#include "planner/predictor/schedule.h"

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <queue>

namespace heddle::planner {
namespace {

struct WorkerClock {
  size_t next = 0;
  double now = 0;
  double outgoing_free = 0;
  double incoming_free = 0;
  bool voted = false;
  struct LaneClock {
    double free = 0;         ///< When the lane's last collective that has run ends.
    std::deque<int> issued;  ///< Issued collectives that have not run, in program order.
  };
  std::array<LaneClock, kLanes> lanes;

  LaneClock& At(Lane lane) { return lanes[static_cast<size_t>(lane)]; }
  /// When all that it computes and communicates has ended.
  double End() const { return std::max({now, lanes[0].free, lanes[1].free}); }
};

struct MessageState {
  double arrival = -1;
  int waiter = -1;
};

struct CollectiveState {
  double issued = 0;  ///< When its last member so far issued it.
  int missing = 0;    ///< Members that have not issued it.
  double end = -1;    ///< When it ends; -1: it has not run.
  std::vector<int> waiters = {};
};

class Runner {
 public:
  Runner(const Schedule& schedule, const comm::LinkTable& links, bool timeline)
      : schedule_(schedule),
        links_(links),
        timeline_(timeline),
        workers_(schedule.workers.size()),
        messages_(static_cast<size_t>(schedule.messages)),
        collectives_(schedule.collectives.size()) {
    times_.busy.resize(workers_.size());
    times_.waiting.resize(workers_.size());
    times_.finish.resize(workers_.size());
    times_.sent_bytes.resize(workers_.size());
    for (size_t i = 0; i < schedule.collectives.size(); ++i) {
      collectives_[i].missing = static_cast<int>(schedule.collectives[i].members.size());
    }
    for (const auto& actions : schedule.workers) {
      for (const Action& action : actions) {
        voters_ += action.kind == Action::Kind::kVote ? 1 : 0;
      }
    }
  }

  Result<ScheduleTimes> Run() {
    for (size_t rank = 0; rank < workers_.size(); ++rank) {
      Wake(static_cast<int>(rank));
    }
    // The worker with the smallest clock goes first, so that shared links are taken in order of
    // time.
    while (!ready_.empty()) {
      const int rank = ready_.top().second;
      ready_.pop();
      Advance(rank);
    }
    for (size_t rank = 0; rank < workers_.size(); ++rank) {
      if (workers_[rank].next < schedule_.workers[rank].size()) {
        return InternalError("worker {} waits for ever at action {} of {}", rank,
                             workers_[rank].next, schedule_.workers[rank].size());
      }
      times_.finish[rank] = workers_[rank].End();
      times_.step_seconds = std::max(times_.step_seconds, times_.finish[rank]);
    }
    return std::move(times_);
  }

 private:
  using Entry = std::pair<double, int>;

  WorkerClock& At(int rank) { return workers_[static_cast<size_t>(rank)]; }
  void Wake(int rank) { ready_.emplace(At(rank).now, rank); }

  /// Runs the worker until it blocks, ends, or another worker is due first.
  void Advance(int rank) {
    WorkerClock& worker = At(rank);
    const std::vector<Action>& actions = schedule_.workers[static_cast<size_t>(rank)];
    while (worker.next < actions.size()) {
      if (!ready_.empty() && ready_.top() < Entry(worker.now, rank)) {
        Wake(rank);
        return;
      }
      const Action& action = actions[worker.next];
      const double start = worker.now;
      if (!Execute(rank, action)) {
        return;
      }
      Record(rank, action, start);
      ++worker.next;
    }
  }

  /// Executes the worker's next action. False: the worker is blocked. After a blocked receive or
  /// await the action is executed again; a blocked vote is completed by the last voter.
  bool Execute(int rank, const Action& action) {
    WorkerClock& worker = At(rank);
    const bool is_wait = action.kind == Action::Kind::kRecv || action.kind == Action::Kind::kAwait;
    if (!is_wait) {
      worker.now += action.seconds;
      times_.busy[static_cast<size_t>(rank)] += action.seconds;
    }
    switch (action.kind) {
      case Action::Kind::kCompute:
        return true;
      case Action::Kind::kSend:
        Send(rank, action);
        return true;
      case Action::Kind::kRecv:
        return Receive(rank, action);
      case Action::Kind::kCollect:
        Issue(rank, action.collective);
        return true;
      case Action::Kind::kAwait:
        return Await(rank, action);
      case Action::Kind::kVote:
        return Vote(rank);
    }
    return true;
  }

  void Send(int rank, const Action& action) {
    WorkerClock& sender = At(rank);
    WorkerClock& receiver = At(action.peer);
    const comm::Link& link = links_.At(rank, action.peer);
    const double start = std::max({sender.now, sender.outgoing_free, receiver.incoming_free});
    const double end = start + static_cast<double>(action.bytes) / link.bytes_per_second;
    sender.outgoing_free = end;
    receiver.incoming_free = end;
    times_.sent_bytes[static_cast<size_t>(rank)] += static_cast<double>(action.bytes);
    MessageState& message = messages_[static_cast<size_t>(action.message)];
    message.arrival = end + link.latency_seconds;
    if (message.waiter >= 0) {
      Wake(message.waiter);
    }
  }

  bool Receive(int rank, const Action& action) {
    MessageState& message = messages_[static_cast<size_t>(action.message)];
    if (message.arrival < 0) {
      message.waiter = rank;
      return false;
    }
    GoOn(rank, action, message.arrival);
    return true;
  }

  bool Await(int rank, const Action& action) {
    CollectiveState& state = collectives_[static_cast<size_t>(action.collective)];
    if (state.end < 0) {
      state.waiters.push_back(rank);
      return false;
    }
    GoOn(rank, action, state.end);
    return true;
  }

  /// Waits until `time`, then does the action's own work.
  void GoOn(int rank, const Action& action, double time) {
    WorkerClock& worker = At(rank);
    if (time > worker.now) {
      times_.waiting[static_cast<size_t>(rank)] += time - worker.now;
      worker.now = time;
    }
    worker.now += action.seconds;
    times_.busy[static_cast<size_t>(rank)] += action.seconds;
  }

  void Issue(int rank, int collective) {
    CollectiveState& state = collectives_[static_cast<size_t>(collective)];
    const Lane lane = schedule_.collectives[static_cast<size_t>(collective)].lane;
    At(rank).At(lane).issued.push_back(collective);
    state.issued = std::max(state.issued, At(rank).now);
    --state.missing;
    Resolve(rank, lane);
  }

  /// Runs the lane's collectives that are the oldest ones on all their members.
  void Resolve(int rank, Lane lane) {
    std::vector<int> look = {rank};
    while (!look.empty()) {
      const int candidate = look.back();
      if (At(candidate).At(lane).issued.empty()) {
        look.pop_back();
        continue;
      }
      const int collective = At(candidate).At(lane).issued.front();
      const Collective& work = schedule_.collectives[static_cast<size_t>(collective)];
      CollectiveState& state = collectives_[static_cast<size_t>(collective)];
      const bool due = state.missing == 0 &&
                       std::all_of(work.members.begin(), work.members.end(), [&](int member) {
                         const std::deque<int>& issued = At(member).At(lane).issued;
                         return !issued.empty() && issued.front() == collective;
                       });
      if (!due) {
        look.pop_back();
        continue;
      }
      double start = state.issued;
      for (const int member : work.members) {
        start = std::max(start, At(member).At(lane).free);
      }
      state.end = start + work.seconds;
      for (const int member : work.members) {
        At(member).At(lane).free = state.end;
        At(member).At(lane).issued.pop_front();
        if (member != candidate) {
          look.push_back(member);
        }
      }
      for (const int waiter : state.waiters) {
        Wake(waiter);
      }
    }
  }

  bool Vote(int rank) {
    At(rank).voted = true;
    if (++votes_ < voters_) {
      return false;
    }
    double reached = 0;
    double complete = 0;
    for (const WorkerClock& worker : workers_) {
      if (!worker.lanes[0].issued.empty() || !worker.lanes[1].issued.empty()) {
        return false;  // A collective that some member never issues: reported as a wait for ever.
      }
      reached = std::max(reached, worker.now);
      complete = std::max(complete, worker.End());
    }
    times_.exposed_reduction_seconds = complete - reached;
    times_.vote_seconds_at = complete + schedule_.vote_seconds;
    for (size_t other = 0; other < workers_.size(); ++other) {
      WorkerClock& worker = workers_[other];
      if (!worker.voted) {
        continue;
      }
      const double start = worker.now;
      times_.waiting[other] += times_.vote_seconds_at - worker.now;
      worker.now = times_.vote_seconds_at;
      if (static_cast<int>(other) != rank) {
        Record(static_cast<int>(other), schedule_.workers[other][worker.next], start);
        ++worker.next;
        Wake(static_cast<int>(other));
      }
    }
    return true;
  }

  void Record(int rank, const Action& action, double start) {
    if (timeline_) {
      times_.timeline.push_back({rank, action.instruction, start, At(rank).now});
    }
  }

  const Schedule& schedule_;
  const comm::LinkTable& links_;
  const bool timeline_;
  std::vector<WorkerClock> workers_;
  std::vector<MessageState> messages_;
  std::vector<CollectiveState> collectives_;
  int voters_ = 0;
  int votes_ = 0;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready_;
  ScheduleTimes times_;
};

}  // namespace

Result<ScheduleTimes> RunSchedule(const Schedule& schedule,
                                  const comm::LinkTable& links,
                                  bool timeline) {
  if (links.size() < static_cast<int>(schedule.workers.size())) {
    return InvalidArgumentError("links for {} workers, programs for {}", links.size(),
                                schedule.workers.size());
  }
  return Runner(schedule, links, timeline).Run();
}

}  // namespace heddle::planner
