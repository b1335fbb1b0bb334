/// \file
/// The event rules of a step against a straightforward execution of the same rules, and each rule
/// alone where it decides the time.
#include "planner/predictor/schedule.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "base/random.h"
#include "tests/support/seed.h"

namespace heddle::planner {
namespace {

using Kind = Action::Kind;

comm::LinkTable Links(int workers, double latency_seconds, double bytes_per_second) {
  comm::LinkTable links(workers);
  for (int from = 0; from < workers; ++from) {
    for (int to = 0; to < workers; ++to) {
      links.At(from, to) = {.latency_seconds = latency_seconds,
                            .bytes_per_second = bytes_per_second,
                            .transport = "tcp"};
    }
  }
  return links;
}

/// The rules of schedule.h, one action at a time: of all workers whose next action can be done, the
/// one with the smallest clock does it.
class Reference {
 public:
  Reference(const Schedule& schedule, const comm::LinkTable& links)
      : schedule_(schedule),
        links_(links),
        arrival(static_cast<size_t>(schedule.messages), -1),
        ended(schedule.collectives.size(), -1) {
    const size_t count = schedule.workers.size();
    times.busy.assign(count, 0);
    times.waiting.assign(count, 0);
    times.finish.assign(count, 0);
    times.sent_bytes.assign(count, 0);
    for (auto* each : {&now, &out, &in, &communication, &exchanging}) {
      each->assign(count, 0);
    }
    next.assign(count, 0);
  }

  ScheduleTimes Run() {
    for (int rank = Pick(); rank >= 0; rank = Pick()) {
      Do(static_cast<size_t>(rank));
    }
    for (size_t rank = 0; rank < now.size(); ++rank) {
      times.finish[rank] = std::max({now[rank], communication[rank], exchanging[rank]});
      times.step_seconds = std::max(times.step_seconds, times.finish[rank]);
    }
    return times;
  }

 private:
  const Action* Next(size_t rank) const {
    return next[rank] < schedule_.workers[rank].size() ? &schedule_.workers[rank][next[rank]]
                                                       : nullptr;
  }

  int Pick() {
    int best = -1;
    bool all_vote = true;
    for (size_t rank = 0; rank < now.size(); ++rank) {
      const Action* action = Next(rank);
      all_vote = all_vote && action != nullptr && action->kind == Kind::kVote;
      if (action == nullptr || action->kind == Kind::kVote ||
          (action->kind == Kind::kRecv && arrival[static_cast<size_t>(action->message)] < 0) ||
          (action->kind == Kind::kAwait && ended[static_cast<size_t>(action->collective)] < 0)) {
        continue;
      }
      if (best < 0 || now[rank] < now[static_cast<size_t>(best)]) {
        best = static_cast<int>(rank);
      }
    }
    if (best < 0 && all_vote) {
      Vote();
      return Pick();
    }
    return best;
  }

  void Do(size_t rank) {
    const Action& action = *Next(rank);
    ++next[rank];
    if (action.kind == Kind::kRecv || action.kind == Kind::kAwait) {
      const double came = action.kind == Kind::kRecv
                              ? arrival[static_cast<size_t>(action.message)]
                              : ended[static_cast<size_t>(action.collective)];
      times.waiting[rank] += std::max(0.0, came - now[rank]);
      now[rank] = std::max(now[rank], came);
    }
    now[rank] += action.seconds;
    times.busy[rank] += action.seconds;
    if (action.kind == Kind::kSend) {
      const auto peer = static_cast<size_t>(action.peer);
      const comm::Link& link = links_.At(static_cast<int>(rank), action.peer);
      const double start = std::max({now[rank], out[rank], in[peer]});
      out[rank] = in[peer] = start + static_cast<double>(action.bytes) / link.bytes_per_second;
      arrival[static_cast<size_t>(action.message)] = out[rank] + link.latency_seconds;
      times.sent_bytes[rank] += static_cast<double>(action.bytes);
    }
    if (action.kind == Kind::kCollect) {
      issued.push_back({static_cast<int>(rank), action.collective, now[rank]});
      RunExchanges();
    }
  }

  /// Runs the exchanges that all members have issued, unless a member has an earlier one to run.
  void RunExchanges() {
    std::vector<bool> busy(now.size(), false);
    for (size_t c = 0; c < ended.size(); ++c) {
      const Collective& work = schedule_.collectives[c];
      if (work.lane != Lane::kExchanges || ended[c] >= 0) {
        continue;
      }
      double start = 0;
      size_t missing = work.members.size();
      for (const Issue& issue : issued) {
        if (issue.collective == static_cast<int>(c)) {
          start = std::max(start, issue.at);
          --missing;
        }
      }
      bool due = missing == 0;
      for (const int member : work.members) {
        due = due && !busy[static_cast<size_t>(member)];
        start = std::max(start, exchanging[static_cast<size_t>(member)]);
      }
      for (const int member : work.members) {
        busy[static_cast<size_t>(member)] = true;
        if (due) {
          exchanging[static_cast<size_t>(member)] = ended[c] = start + work.seconds;
        }
      }
      if (due) {
        return RunExchanges();
      }
    }
  }

  /// All reductions have been issued by all members, in one order: they run in it.
  void Vote() {
    for (size_t r = 0; r < schedule_.collectives.size(); ++r) {
      const Collective& work = schedule_.collectives[r];
      if (work.lane != Lane::kReductions) {
        continue;
      }
      double start = 0;
      for (const int member : work.members) {
        start = std::max(start, communication[static_cast<size_t>(member)]);
      }
      for (const Issue& issue : issued) {
        start = issue.collective == static_cast<int>(r) ? std::max(start, issue.at) : start;
      }
      for (const int member : work.members) {
        communication[static_cast<size_t>(member)] = start + work.seconds;
      }
    }
    double reached = 0;
    for (size_t rank = 0; rank < now.size(); ++rank) {
      now[rank] += Next(rank)->seconds;
      times.busy[rank] += Next(rank)->seconds;
      reached = std::max(reached, now[rank]);
    }
    const double complete = std::max(
        {reached, *std::ranges::max_element(communication), *std::ranges::max_element(exchanging)});
    times.exposed_reduction_seconds = complete - reached;
    times.vote_seconds_at = complete + schedule_.vote_seconds;
    for (size_t rank = 0; rank < now.size(); ++rank) {
      times.waiting[rank] += times.vote_seconds_at - now[rank];
      now[rank] = times.vote_seconds_at;
      ++next[rank];
    }
  }

  struct Issue {
    int rank;
    int collective;
    double at;
  };

  const Schedule& schedule_;
  const comm::LinkTable& links_;
  std::vector<double> arrival;
  std::vector<double> ended;  ///< By collective: when an exchange has ended; -1: it has not run.
  std::vector<double> now, out, in, communication, exchanging;
  std::vector<size_t> next;
  std::vector<Issue> issued;
  ScheduleTimes times;
};

/// Work, messages and reductions in one global order, so that no list can wait for ever. All times
/// are quarters of a second: sums are exact.
Schedule RandomSchedule(Random& random, int workers) {
  Schedule schedule;
  schedule.workers.resize(static_cast<size_t>(workers));
  schedule.vote_seconds = static_cast<double>(random.Between(0, 8)) / 4;
  const auto any = [&] { return static_cast<double>(random.Between(0, 12)) / 4; };
  const auto of = [&](int rank) -> std::vector<Action>& {
    return schedule.workers[static_cast<size_t>(rank)];
  };
  for (int i = 0; i < 40; ++i) {
    const int from = static_cast<int>(random.Between(0, workers - 1));
    const int to = (from + static_cast<int>(random.Between(1, workers - 1))) % workers;
    const auto kind = random.Below(7);
    if (kind < 3) {
      const int message = schedule.messages++;
      of(from).push_back({.kind = Kind::kSend,
                          .seconds = any(),
                          .peer = to,
                          .message = message,
                          .bytes = static_cast<int64_t>(random.Between(0, 9))});
      of(to).push_back({.kind = Kind::kRecv, .seconds = any(), .message = message});
    } else if (kind < 5) {
      of(from).push_back({.kind = Kind::kCompute, .seconds = any()});
    } else {
      const int collective = static_cast<int>(schedule.collectives.size());
      schedule.collectives.push_back({.lane = kind == 5 ? Lane::kReductions : Lane::kExchanges,
                                      .members = {std::min(from, to), std::max(from, to)},
                                      .seconds = any()});
      for (const int member : {from, to}) {
        of(member).push_back({.kind = Kind::kCollect, .seconds = any(), .collective = collective});
      }
      // Members wait for an exchange later, at different times.
      for (const int member : {from, to}) {
        if (kind == 6 && random.Below(2) == 0) {
          of(member).push_back({.kind = Kind::kCompute, .seconds = any()});
        }
        if (kind == 6) {
          of(member).push_back({.kind = Kind::kAwait, .seconds = any(), .collective = collective});
        }
      }
    }
  }
  for (auto& actions : schedule.workers) {
    actions.push_back({.kind = Kind::kVote, .seconds = any()});
    actions.push_back({.kind = Kind::kCompute, .seconds = any()});
  }
  return schedule;
}

TEST(ScheduleTest, RandomSchedulesTakeTheTimesOfTheRulesDoneOneByOne) {
  Random random(testing::TestSeed());
  for (int i = 0; i < 300; ++i) {
    const int workers = static_cast<int>(random.Between(2, 5));
    const Schedule schedule = RandomSchedule(random, workers);
    comm::LinkTable links = Links(workers, 0, 1);
    for (int from = 0; from < workers; ++from) {
      for (int to = 0; to < workers; ++to) {
        links.At(from, to).latency_seconds = static_cast<double>(random.Between(0, 6)) / 4;
        links.At(from, to).bytes_per_second = random.Below(2) == 0 ? 1 : 4;
      }
    }
    const Result<ScheduleTimes> found = RunSchedule(schedule, links);
    ASSERT_TRUE(found.ok()) << found.status().ToString();
    const ScheduleTimes expected = Reference(schedule, links).Run();
    ASSERT_EQ(found->step_seconds, expected.step_seconds);
    ASSERT_EQ(found->vote_seconds_at, expected.vote_seconds_at);
    ASSERT_EQ(found->busy, expected.busy);
    ASSERT_EQ(found->waiting, expected.waiting);
    ASSERT_EQ(found->finish, expected.finish);
    ASSERT_EQ(found->sent_bytes, expected.sent_bytes);
    ASSERT_EQ(found->exposed_reduction_seconds, expected.exposed_reduction_seconds);
  }
}

TEST(ScheduleTest, TheIncomingSideOfAWorkerCarriesOneMessageAtATime) {
  // Workers 0 and 1 each send 8 bytes at 1 byte a second to worker 2, at once.
  Schedule schedule;
  schedule.messages = 2;
  schedule.workers.resize(3);
  for (const int from : {0, 1}) {
    schedule.workers[static_cast<size_t>(from)].push_back(
        {.kind = Kind::kSend, .peer = 2, .message = from, .bytes = 8});
    schedule.workers[2].push_back({.kind = Kind::kRecv, .message = from});
  }
  const auto times = RunSchedule(schedule, Links(3, 0.5, 1));
  ASSERT_TRUE(times.ok());
  // The latency of the first holds nobody up.
  EXPECT_EQ(times->finish, (std::vector<double>{0, 0, 16.5}));
}

TEST(ScheduleTest, BothSidesOfAWorkerAreUsedAtOnce) {
  Schedule schedule;
  schedule.messages = 2;
  schedule.workers.resize(2);
  for (const int from : {0, 1}) {
    schedule.workers[static_cast<size_t>(from)].push_back(
        {.kind = Kind::kSend, .peer = 1 - from, .message = from, .bytes = 8});
    schedule.workers[static_cast<size_t>(from)].push_back(
        {.kind = Kind::kRecv, .message = 1 - from});
  }
  const auto times = RunSchedule(schedule, Links(2, 0, 1));
  ASSERT_TRUE(times.ok());
  EXPECT_EQ(times->finish, (std::vector<double>{8, 8}));
}

TEST(ScheduleTest, TheTimelineHasEveryActionWithItsWait) {
  Schedule schedule;
  schedule.messages = 1;
  schedule.workers.resize(2);
  schedule.vote_seconds = 1;
  schedule.workers[0] = {
      {.kind = Kind::kSend, .seconds = 2, .peer = 1, .message = 0, .bytes = 4, .instruction = 0},
      {.kind = Kind::kVote, .instruction = 1}};
  schedule.workers[1] = {{.kind = Kind::kRecv, .seconds = 1, .message = 0, .instruction = 0},
                         {.kind = Kind::kVote, .seconds = 1, .instruction = 1}};
  const auto times = RunSchedule(schedule, Links(2, 0, 2), true);
  ASSERT_TRUE(times.ok());
  // Sent at 2, arrived at 4, taken in until 5, voted at 6, complete at 7.
  std::vector<std::vector<double>> seen;
  for (const TimelineEntry& entry : times->timeline) {
    seen.push_back({static_cast<double>(entry.worker), static_cast<double>(entry.instruction),
                    entry.start, entry.end});
  }
  std::sort(seen.begin(), seen.end());
  // Who votes last does its own work within the vote.
  EXPECT_EQ(seen, (std::vector<std::vector<double>>{
                      {0, 0, 0, 2}, {0, 1, 2, 7}, {1, 0, 0, 5}, {1, 1, 5, 7}}));
  EXPECT_TRUE(RunSchedule(schedule, Links(2, 0, 2))->timeline.empty());
}

TEST(ScheduleTest, TheVoteOfAShortStepComesWhenItsLastPartIsDone) {
  Schedule schedule;
  schedule.workers.resize(2);
  schedule.collectives = {{.members = {0, 1}, .seconds = 0.25}};
  schedule.vote_seconds = 0.0625;
  for (auto& actions : schedule.workers) {
    actions = {{.kind = Kind::kCollect, .collective = 0}, {.kind = Kind::kVote, .seconds = 0.125}};
  }
  const auto times = RunSchedule(schedule, Links(2, 0, 1));
  ASSERT_TRUE(times.ok());
  EXPECT_EQ(times->step_seconds, 0.3125);
  EXPECT_EQ(times->vote_seconds_at, 0.3125);
  EXPECT_EQ(times->exposed_reduction_seconds, 0.125);
}

// While a long reduction runs, an exchange that is issued after it ends first, and the worker that
// awaits it goes on then.
TEST(ScheduleTest, AnExchangeDoesNotWaitForAReduction) {
  Schedule schedule;
  schedule.workers.resize(2);
  schedule.collectives = {{.members = {0, 1}, .seconds = 8},
                          {.lane = Lane::kExchanges, .members = {0, 1}, .seconds = 2}};
  for (auto& actions : schedule.workers) {
    actions = {{.kind = Kind::kCollect, .collective = 0},
               {.kind = Kind::kCollect, .collective = 1},
               {.kind = Kind::kAwait, .seconds = 1, .collective = 1}};
  }
  const auto times = RunSchedule(schedule, Links(2, 0, 1));
  ASSERT_TRUE(times.ok());
  EXPECT_EQ(times->waiting, (std::vector<double>{2, 2}));
  EXPECT_EQ(times->busy, (std::vector<double>{1, 1}));
  EXPECT_EQ(times->finish, (std::vector<double>{8, 8}));
}

TEST(ScheduleTest, ListsThatWaitForEverAreReported) {
  Schedule schedule;
  schedule.workers.resize(2);
  schedule.collectives = {{.members = {0, 1}, .seconds = 1}};
  schedule.workers[0] = {{.kind = Kind::kCollect, .collective = 0}, {.kind = Kind::kVote}};
  schedule.workers[1] = {{.kind = Kind::kVote}};
  EXPECT_EQ(RunSchedule(schedule, Links(2, 0, 1)).status().code(), StatusCode::kInternal);
  // A vote that one worker never reaches.
  schedule.collectives.clear();
  schedule.messages = 1;
  schedule.workers[0] = {{.kind = Kind::kVote}};
  schedule.workers[1] = {{.kind = Kind::kRecv, .message = 0}, {.kind = Kind::kVote}};
  EXPECT_EQ(RunSchedule(schedule, Links(2, 0, 1)).status().code(), StatusCode::kInternal);
}

TEST(ScheduleTest, LinksForFewerWorkersAreAnError) {
  Schedule schedule;
  schedule.workers.resize(3);
  EXPECT_EQ(RunSchedule(schedule, Links(2, 0, 1)).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(RunSchedule(schedule, Links(3, 0, 1)).ok());
}

}  // namespace
}  // namespace heddle::planner
