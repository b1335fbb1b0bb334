#include "tests/elastic/simulation/world/world.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "base/hash.h"

namespace heddle::elastic {

void World::At(Time when, std::function<void()> call) {
  queue_.push({std::max(when, now_), order_++, std::move(call)});
}

Duration World::Lateness() {
  constexpr double kMaxMs = 300;
  if (!Happens(40)) {
    return Duration(0);
  }
  Count("woken late");
  return Milliseconds(kMaxMs * random_.Uniform());
}

Time World::Within(double low_ms, double high_ms) {
  return now_ + Milliseconds(low_ms + (high_ms - low_ms) * random_.Uniform());
}

void World::After(double low_ms, double high_ms, std::function<void()> call) {
  At(Within(low_ms, high_ms), std::move(call));
}

void World::MakeNextCall() {
  // The queue shows its entries as const, though this one leaves it.
  Entry entry = std::move(const_cast<Entry&>(queue_.top()));
  queue_.pop();
  now_ = entry.at;
  entry.call();
}

void World::Fail(const std::string& what) {
  if (result_.error.empty()) {
    result_.error = fmt::format("seed {}: at {:.3f} s: {}", options_.seed, seconds(), what);
    Note("FAILURE: " + what);
  }
}

void World::Trace(const std::string& line) const {
  if (options_.trace) {
    std::printf("%9.4f %s\n", seconds(), line.c_str());
  }
}

void World::Note(const std::string& what) {
  Trace(what);
  if (options_.record) {
    result_.moments.push_back({seconds(), what});
  }
}

void World::AddToDigest(const std::string& decision) {
  result_.digest = Hash64(decision, result_.digest);
}

}  // namespace heddle::elastic
