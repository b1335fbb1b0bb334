/// \file
/// Time, chance and the verdict of a simulated history: what all parts of the cluster share.
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

/// Virtual time moves from one call to the next. Thread: one caller.
class World {
 public:
  explicit World(const SimOptions& options)
      : options_(options),
        random_(options.seed),
        now_(kBegin) {}

  const SimOptions& options() const { return options_; }
  Random& random() { return random_; }
  /// One time in so many, where there is luck.
  bool Happens(uint64_t one_in) { return options_.luck && random_.Below(one_in) == 0; }
  Time now() const { return now_; }
  double seconds() const { return Seconds(now_ - kBegin); }
  int64_t NextNumber() { return next_number_++; }

  void At(Time when, std::function<void()> call);
  /// How late a process is woken: its machine is busy now and then.
  Duration Lateness();
  /// At a random time so long from now.
  void After(double low_ms, double high_ms, std::function<void()> call);
  Time Within(double low_ms, double high_ms);
  bool idle() const { return queue_.empty(); }
  /// When the next call is due; not idle.
  Time next() const { return queue_.top().at; }
  /// Time is that of the next call, which is made then; not idle.
  void MakeNextCall();

  /// The first failure is the history's error.
  void Fail(const std::string& what);
  bool traces() const { return options_.trace; }
  void Trace(const std::string& line) const;
  void Count(const std::string& probe, int times = 1) { result_.probes[probe] += times; }
  /// For people.
  void Note(const std::string& what);
  void AddToDigest(const std::string& decision);
  SimResult& result() { return result_; }

  /// The job has ended.
  void End() { ended_ = true; }
  bool ended() const { return ended_; }
  /// There are no further faults.
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
