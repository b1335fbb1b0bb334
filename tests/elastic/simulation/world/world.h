/// \file
/// The virtual time, the random numbers and the result of a simulated history, which all parts of
/// the cluster share.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <string>

#include "base/clock.h"
#include "base/random.h"
#include "tests/elastic/simulation/history/history.h"

namespace heddle::elastic {

inline Duration Milliseconds(double value) {
  return FromSeconds(value / 1000);
}

/// The state that all parts of the cluster share. Virtual time moves from one scheduled call to the
/// next. Thread: one caller.
class World {
 public:
  explicit World(const SimOptions& options)
      : options_(options),
        random_(options.seed),
        now_(kBegin) {}

  const SimOptions& options() const { return options_; }
  Random& random() { return random_; }
  /// True one time in `one_in`, by chance; always false without SimOptions::luck.
  bool Happens(uint64_t one_in) { return options_.luck && random_.Below(one_in) == 0; }
  Time now() const { return now_; }
  double seconds() const { return Seconds(now_ - kBegin); }
  int64_t NextNumber() { return next_number_++; }

  /// Schedules a call at a virtual time, at once if that is past.
  void At(Time when, std::function<void()> call);
  /// The time by which a process is woken late, for its machine is busy now and then; mostly 0.
  Duration Lateness();
  /// Schedules a call at a random time between `low_ms` and `high_ms` from now.
  void After(double low_ms, double high_ms, std::function<void()> call);
  /// A random time between `low_ms` and `high_ms` from now.
  Time Within(double low_ms, double high_ms);
  bool idle() const { return queue_.empty(); }
  /// The virtual time of the next call; must not be called when idle().
  Time next() const { return queue_.top().at; }
  /// Moves the time to that of the next call, and makes the call; must not be called when idle().
  void MakeNextCall();

  /// Notes a failure; the first one becomes SimResult::error.
  void Fail(const std::string& what);
  bool traces() const { return options_.trace; }
  void Trace(const std::string& line) const;
  void Count(const std::string& probe, int times = 1) { result_.probes[probe] += times; }
  /// Adds a moment to SimResult::moments, for people.
  void Note(const std::string& what);
  void AddToDigest(const std::string& decision);
  SimResult& result() { return result_; }

  /// Notes that the job has ended.
  void End() { ended_ = true; }
  bool ended() const { return ended_; }
  /// Notes that there are no further faults.
  void Heal() { healed_at_ = now_; }
  bool healed() const { return healed_at_.has_value(); }
  std::optional<Time> healed_at() const { return healed_at_; }

 private:
  static constexpr Time kBegin = Time(std::chrono::seconds(1000));
  struct Entry {
    Time at;
    uint64_t order = 0;
    std::function<void()> call;
    bool operator<(const Entry& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };

  const SimOptions options_;
  Random random_;
  Time now_;
  uint64_t order_ = 0;
  int64_t next_number_ = 1;
  std::priority_queue<Entry> queue_;
  SimResult result_;
  bool ended_ = false;
  std::optional<Time> healed_at_;
};

}  // namespace heddle::elastic
