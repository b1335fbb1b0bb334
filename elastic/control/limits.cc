#include "elastic/control/limits.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/units.h"

namespace heddle::elastic {
namespace {

constexpr Duration kNone{0};

using std::chrono::milliseconds;
using std::chrono::seconds;

// A limit of `times` / `over` leases. It has a least value, because work does not get quicker with
// a shorter lease.
struct Derived {
  const char* name;
  Duration& (*field)(JobPolicy&);
  int64_t times;
  int64_t over;
  Duration at_least;
  Duration at_most;  // 0: no upper bound.
  const char* meaning;
};

constexpr Derived kDerived[] = {
    {"heartbeat", [](JobPolicy& p) -> Duration& { return p.heartbeat; }, 1, 15, milliseconds(50),
     kLongestHeartbeat, "between two words of a worker"},
    {"reconnect_grace", [](JobPolicy& p) -> Duration& { return p.reconnect_grace; }, 1, 10,
     milliseconds(200), kNone, "a worker whose stream broke may come back"},
    {"probe", [](JobPolicy& p) -> Duration& { return p.probe; }, 1, 6, milliseconds(200), kNone,
     "an accused worker may still answer"},
    {"coalesce", [](JobPolicy& p) -> Duration& { return p.coalesce; }, 1, 20, milliseconds(50),
     kNone, "further losses or notices are waited for after one"},
    {"adopt_extra", [](JobPolicy& p) -> Duration& { return p.adopt_extra; }, 2, 3, seconds(1),
     kNone, "beyond the lease, workers may come back to a coordinator that was away"},
    {"reply_timeout", [](JobPolicy& p) -> Duration& { return p.reply_timeout; }, 20, 3, seconds(10),
     kNone, "a worker that is asked for something may stand still"},
    {"stop_timeout", [](JobPolicy& p) -> Duration& { return p.stop_timeout; }, 40, 1, seconds(60),
     kNone, "members that are asked to stop after a step may stand still"},
    {"move_timeout", [](JobPolicy& p) -> Duration& { return p.move_timeout; }, 20, 1, seconds(30),
     kNone, "a worker that connects and moves state may stand still"},
    {"hang_timeout", [](JobPolicy& p) -> Duration& { return p.hang_timeout; }, 5, 1, seconds(5),
     kNone, "a member that others wait for in a step may do nothing"},
    {"profile_timeout", [](JobPolicy& p) -> Duration& { return p.profile_timeout; }, 20, 1,
     seconds(30), kNone, "a worker that measures its device may stand still"},
    {"plan_timeout", [](JobPolicy& p) -> Duration& { return p.plan_timeout; }, 40, 1, seconds(60),
     kNone, "a plan is waited for before the job says that it is paused"},
    {"first_retry", [](JobPolicy& p) -> Duration& { return p.first_retry; }, 2, 3, seconds(1),
     kNone, "before a plan that was refused is asked for again; doubles"},
    {"last_retry", [](JobPolicy& p) -> Duration& { return p.last_retry; }, 20, 1, seconds(30),
     kNone, "the most between two such questions"},
    {"formation_timeout", [](JobPolicy& p) -> Duration& { return p.formation_timeout; }, 10, 1,
     seconds(15), kNone, "all workers of the job are waited for before the least number will do"},
    {"cut_off_timeout", [](JobPolicy& p) -> Duration& { return p.cut_off_timeout; }, 200, 1,
     seconds(300), kNone, "a silent worker for which others speak is kept"},
    {"mass_silence", [](JobPolicy& p) -> Duration& { return p.mass_silence; }, 10, 1, seconds(15),
     kNone, "at most half of all workers are given up for silence alone; further ones are held"},
    {"coordinator_wait", [](JobPolicy& p) -> Duration& { return p.coordinator_wait; }, 200, 1,
     seconds(300), kNone, "a worker without anything to do waits for a coordinator"},
    {"links.timeout", [](JobPolicy& p) -> Duration& { return p.links.timeout; }, 5, 3, seconds(5),
     seconds(60), "one measurement of a link"},
    {"links.wait", [](JobPolicy& p) -> Duration& { return p.links.wait; }, 10, 1, seconds(15),
     kNone, "a plan waits for all measurements"},
    {"quarantine.short_life", [](JobPolicy& p) -> Duration& { return p.quarantine.short_life; }, 10,
     1, seconds(15), kNone, "a worker lost sooner after it came counts as one that comes and goes"},
    {"quarantine.first", [](JobPolicy& p) -> Duration& { return p.quarantine.first; }, 3, 1,
     seconds(5), kNone, "such a worker is held off after the second time in a row; doubles"},
    {"quarantine.longest", [](JobPolicy& p) -> Duration& { return p.quarantine.longest; }, 100, 1,
     seconds(100), kNone, "the most that it is held off"},
    {"drift.cooldown", [](JobPolicy& p) -> Duration& { return p.drift.cooldown; }, 5, 3, seconds(2),
     kNone, "between two changes for drift; doubles"},
    {"drift.longest_cooldown", [](JobPolicy& p) -> Duration& { return p.drift.longest_cooldown; },
     100, 1, seconds(100), kNone, "the most between two such changes"}};

std::string FormulaOf(const Derived& derived) {
  std::string text = "lease";
  text += derived.times > 1 ? fmt::format(" × {}", derived.times) : "";
  text += derived.over > 1 ? fmt::format(" / {}", derived.over) : "";
  text += ", at least " + FormatDuration(derived.at_least);
  return text +
         (derived.at_most > kNone ? ", at most " + FormatDuration(derived.at_most) : std::string());
}

Duration ValueOf(const Derived& derived, Duration lease) {
  const Duration value = std::max(lease * derived.times / derived.over, derived.at_least);
  return derived.at_most > kNone ? std::min(value, derived.at_most) : value;
}

}  // namespace

void SetLease(JobPolicy& policy, Duration lease) {
  policy.lease = lease;
  for (const Derived& derived : kDerived) {
    derived.field(policy) = ValueOf(derived, lease);
  }
}

std::vector<Limit> LimitsOf(const JobPolicy& policy) {
  std::vector<Limit> limits;
  limits.push_back({"lease", Seconds(policy.lease), "s", "elastic.lease",
                    "a worker that says nothing is lost, unless others speak for it"});
  JobPolicy copy = policy;
  for (const Derived& derived : kDerived) {
    const Duration value = derived.field(copy);
    const Duration extra = value - ValueOf(derived, policy.lease);
    std::string more = extra > kNone ? fmt::format(", and {}", FormatDuration(extra)) : "";
    more += extra < kNone ? ", no more than another key leaves room for" : "";
    limits.push_back(
        {derived.name, Seconds(value), "s", FormulaOf(derived) + more, derived.meaning});
  }
  limits.push_back({"paused_timeout", Seconds(policy.paused_timeout), "s",
                    policy.paused_timeout > kNone ? "fixed" : "none: for ever",
                    "the job waits for workers when it has too few"});
  limits.push_back({"notice", Seconds(policy.notice), "s", "elastic.notice",
                    "what workers hold that are all told to end is saved"});
  limits.push_back({"gap", Seconds(kGap), "s", "the longest heartbeat × 5",
                    "between two words of a worker, for its silence to count as none"});
  limits.push_back({"max_recoveries_without_step",
                    static_cast<double>(policy.max_recoveries_without_step), "", "fixed",
                    "recoveries in a row without a step between fail the job"});
  return limits;
}

}  // namespace heddle::elastic
