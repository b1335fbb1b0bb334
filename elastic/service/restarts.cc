#include "elastic/service/restarts.h"

#include <algorithm>

namespace heddle::elastic {
namespace {

constexpr Duration kSteadyLife = std::chrono::seconds(10);
constexpr Duration kFirstWait = std::chrono::seconds(1);
constexpr Duration kLongestWait = std::chrono::minutes(1);

}  // namespace

void Restarts::Started(const std::string& name, Time now) {
  lives_[name].started = now;
}

void Restarts::Ended(const std::string& name, Time now) {
  Life& life = lives_[name];
  life.short_lives = now - life.started < kSteadyLife ? life.short_lives + 1 : 0;
  Duration wait = life.short_lives > 0 ? kFirstWait : Duration::zero();
  for (int i = 1; i < life.short_lives && wait < kLongestWait; ++i) {
    wait *= 2;
  }
  life.due = now + std::min(wait, kLongestWait);
}

std::vector<std::string> Restarts::TakeDue(Time now) {
  std::vector<std::string> due;
  for (auto& [name, life] : lives_) {
    if (life.due && *life.due <= now) {
      life.due.reset();
      due.push_back(name);
    }
  }
  return due;
}

std::optional<Time> Restarts::NextDue() const {
  std::optional<Time> next;
  for (const auto& [name, life] : lives_) {
    if (life.due && (!next || *life.due < *next)) {
      next = life.due;
    }
  }
  return next;
}

}  // namespace heddle::elastic
