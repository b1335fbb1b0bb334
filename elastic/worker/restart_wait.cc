#include "elastic/worker/restart_wait.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include <fmt/format.h>

namespace heddle::elastic {
namespace {

constexpr double kFirstWait = 0.5;
constexpr double kLongestWait = 60;
constexpr double kAsGoodAsNew = 600;
constexpr int kMaxCount = 20;

}  // namespace

RestartWait NextRestartWait(const std::string& last, double now) {
  std::istringstream words(last);
  int count = 0;
  double when = 0;
  const bool known =
      static_cast<bool>(words >> count >> when) && count > 0 && now - when < kAsGoodAsNew;
  count = known ? std::min(count, kMaxCount) : 0;
  const double wait = std::min(kFirstWait * std::exp2(count), kLongestWait);
  return {.seconds = wait, .text = fmt::format("{} {:.3f}", count + 1, now + wait)};
}

}  // namespace heddle::elastic
