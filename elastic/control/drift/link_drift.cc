#include "elastic/control/drift/link_drift.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

namespace heddle::elastic {
namespace {

using Rates = std::array<double, 2>;  // Rates from a to b and back, of the fastest transport.

Rates RatesOf(const wire::Links::Pair& pair) {
  Rates rates{};
  for (const wire::Links::Transport& transport : pair.transports()) {
    rates[0] = std::max(rates[0], transport.bytes_per_second());
    rates[1] = std::max(rates[1], transport.back_bytes_per_second());
  }
  return rates;
}

// The first member of a place other than `other`.
std::optional<int> MemberOf(const wire::Links& links, int members, int place, int other) {
  for (int i = 0; i < members; ++i) {
    if (i != other && links.places(i) == place) {
      return i;
    }
  }
  return std::nullopt;
}

double MedianOf(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void LinkDrift::BeginGeneration(std::vector<std::string> members, wire::Links links) {
  members_ = std::move(members);
  planned_ = std::move(links);
  window_ = 0;
  usual_.clear();
  last_.clear();
  measuring_ = false;
}

void LinkDrift::Count(const std::string& worker,
                      const wire::Heartbeat& message,
                      const Generations& generations,
                      const DriftPolicy& policy) {
  const auto& held = generations.held();
  if (!held || message.generation() != held->number || held->plan.members.empty() ||
      worker != held->plan.members.front() || message.window() <= window_) {
    return;
  }
  window_ = message.window();
  const double seconds = message.window_seconds() / static_cast<double>(message.window_steps());
  if (window_ <= policy.windows_excluded || !(seconds > 0) || !std::isfinite(seconds)) {
    return;
  }
  if (static_cast<int>(usual_.size()) < policy.windows) {
    usual_.push_back(seconds);
    return;
  }
  last_.push_back(seconds);
  while (static_cast<int>(last_.size()) > policy.windows) {
    last_.pop_front();
  }
}

bool LinkDrift::IsSuspicious(const DriftPolicy& policy) const {
  if (static_cast<int>(last_.size()) < policy.windows_over) {
    return false;
  }
  const double usual = MedianOf(usual_);
  const auto slower = std::count_if(last_.begin(), last_.end(), [&](double seconds) {
    return seconds > policy.threshold * usual;
  });
  const auto quicker = std::count_if(last_.begin(), last_.end(), [&](double seconds) {
    return seconds < usual / policy.threshold;
  });
  return std::max(slower, quicker) >= policy.windows_over;
}

bool LinkDrift::Notice(bool measured,
                       const Generations& generations,
                       const Roster& roster,
                       const DriftPolicy& policy,
                       Time now,
                       LinkSurvey& links,
                       Outbox& out) {
  const std::vector<std::string>& members = generations.held()->plan.members;
  const bool all_here = std::all_of(members.begin(), members.end(),
                                    [&](const auto& name) { return roster.Find(name) != nullptr; });
  if (!measured || !all_here) {
    return false;
  }
  if (members_.empty()) {
    members_ = members;
    planned_ = links.LinksOf(members, roster);
  }
  if (std::exchange(measuring_, false)) {
    if (FindChange(links.LinksOf(members_, roster), policy.link_factor, out)) {
      return true;
    }
    Answered(policy, now);  // The links have not changed: steps are slow for another reason.
  } else if (pause_.IsOver(now) && IsSuspicious(policy)) {
    measuring_ = true;
    out.Log("links_suspected", {{"usual_seconds", MedianOf(usual_)},
                                {"seconds", MedianOf({last_.begin(), last_.end()})}});
    links.MeasureAgain(members_, roster);
  }
  return false;
}

// Finds links that have changed. The places may be others than before, because an emulated rate
// makes a place of its own; so pairs are matched by their members.
bool LinkDrift::FindChange(const wire::Links& now, double factor, Outbox& out) {
  std::map<std::pair<int, int>, Rates> planned;
  for (const wire::Links::Pair& pair : planned_.pairs()) {
    planned[{pair.a(), pair.b()}] = RatesOf(pair);
  }
  const auto members = static_cast<int>(members_.size());
  int64_t changed = 0;
  double most = factor;
  for (const wire::Links::Pair& pair : now.pairs()) {
    const std::optional<int> a = MemberOf(now, members, pair.a(), -1);
    const std::optional<int> b = MemberOf(now, members, pair.b(), a.value_or(-1));
    if (!a || !b) {
      continue;
    }
    const int first = planned_.places(*a);
    const int second = planned_.places(*b);
    const auto before = planned.find(std::minmax(first, second));
    if (before == planned.end()) {
      continue;
    }
    Rates after = RatesOf(pair);
    if (first > second) {
      std::swap(after[0], after[1]);
    }
    bool counts = false;
    for (const size_t back : {0U, 1U}) {
      const double was = before->second[back];
      const double is = after[back];
      if (!(was > 0) || !(is > 0)) {
        continue;
      }
      const double ratio = std::max(was / is, is / was);
      counts = counts || ratio >= factor;
      if (ratio >= most) {
        most = ratio;
        const bool turned = (back == 1) != (first > second);
        noticed_ = Change{.from = members_[static_cast<size_t>(turned ? *b : *a)],
                          .to = members_[static_cast<size_t>(turned ? *a : *b)],
                          .planned = was,
                          .measured = is};
      }
    }
    changed += counts ? 1 : 0;
  }
  if (changed > 0) {
    out.Log("link_drift", {{"from", noticed_->from},
                           {"to", noticed_->to},
                           {"planned_bytes_per_second", noticed_->planned},
                           {"bytes_per_second", noticed_->measured},
                           {"pairs", changed}});
  }
  return changed > 0;
}

void LinkDrift::Answered(const DriftPolicy& policy, Time now) {
  usual_.clear();
  last_.clear();
  pause_.Begin(policy, now);
}

}  // namespace heddle::elastic
