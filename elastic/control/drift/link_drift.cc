#include "elastic/control/drift/link_drift.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "elastic/control/drift/median.h"

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

std::map<std::pair<int, int>, Rates> RatesByPlaces(const wire::Links& links) {
  std::map<std::pair<int, int>, Rates> rates;
  for (const wire::Links::Pair& pair : links.pairs()) {
    rates[{pair.a(), pair.b()}] = RatesOf(pair);
  }
  return rates;
}

std::map<std::string, int> PlacesByWorker(const PlannedLinks& planned) {
  std::map<std::string, int> places;
  for (size_t i = 0; i < planned.workers.size(); ++i) {
    places[planned.workers[i]] = planned.links.places(static_cast<int>(i));
  }
  return places;
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

}  // namespace

void LinkDrift::BeginGeneration(PlannedLinks planned) {
  planned_ = std::move(planned);
  series_.clear();
  logged_.reset();
  begins_ = true;
}

void LinkDrift::Count(const std::string& worker,
                      const wire::Heartbeat& message,
                      const Generations& generations,
                      const DriftPolicy& policy) {
  const auto& held = generations.held();
  if (!held || message.generation() != held->number || !generations.IsMember(worker) ||
      message.window() <= policy.windows_excluded) {
    return;
  }
  const auto steps = static_cast<double>(message.window_steps());
  const Window window{.step = message.window_seconds() / steps,
                      .busy = message.busy_seconds() / steps};
  if (!(window.step > 0) || !std::isfinite(window.step) || !std::isfinite(window.busy)) {
    return;
  }
  Series& series = series_[worker];
  if (message.window() <= series.number) {
    return;
  }
  series.number = message.window();
  if (std::ssize(series.first) < policy.windows) {
    series.first.push_back(window);
    return;
  }
  series.newest.push_back(window);
  if (std::ssize(series.newest) > policy.windows) {
    series.newest.erase(series.newest.begin());
  }
}

double LinkDrift::UnexplainedOf(const Window& window, const Window& usual, bool slower) {
  const double step = slower ? window.step / usual.step : usual.step / window.step;
  if (!(window.busy > 0) || !(usual.busy > 0)) {
    return step;  // The member computes nothing that could explain it.
  }
  return step / std::max(1.0, slower ? window.busy / usual.busy : usual.busy / window.busy);
}

LinkDrift::Window LinkDrift::UsualOf(const Series& series) {
  std::vector<double> step;
  std::vector<double> busy;
  for (const Window& window : series.first) {
    step.push_back(window.step);
    busy.push_back(window.busy);
  }
  return {.step = MedianOf(std::move(step)), .busy = MedianOf(std::move(busy))};
}

bool LinkDrift::IsSuspicious(int count, int least, double threshold) const {
  const auto speaks_for = [&](const Series& series, bool slower) {
    if (std::ssize(series.newest) < least) {
      return false;
    }
    const Window usual = UsualOf(series);
    const auto looked_at = std::min<std::ptrdiff_t>(count, std::ssize(series.newest));
    const auto beyond = [&](const Window& window) {
      return UnexplainedOf(window, usual, slower) > threshold;
    };
    return std::count_if(series.newest.end() - looked_at, series.newest.end(), beyond) >= least;
  };
  const auto all = [&](bool slower) {
    return std::ranges::all_of(series_,
                               [&](const auto& entry) { return speaks_for(entry.second, slower); });
  };
  return !series_.empty() && (all(true) || all(false));
}

// All members must be there, for their links are asked for.
bool LinkDrift::CanLook(const View& view, const LinkSurvey& links) {
  const std::vector<std::string>& members = view.generations.held()->plan.members;
  if (!std::ranges::all_of(
          members, [&](const std::string& name) { return view.roster.Find(name) != nullptr; })) {
    return false;
  }
  if (planned_.workers.empty() && view.measured) {
    planned_ = {.workers = members, .links = links.LinksOf(members, view.roster)};
  }
  return !planned_.workers.empty();
}

bool LinkDrift::Notice(const View& view, LinkSurvey& links, Outbox& out) {
  if (!view.measured || !CanLook(view, links)) {
    return false;
  }
  const DriftPolicy& policy = view.policy;
  if (suspected_ || (begins_ && pause_.IsOver(view.now))) {
    begins_ = false;
    const bool suspected = std::exchange(suspected_, false);
    if (FindChange(view, links, out)) {
      return true;
    }
    if (suspected) {  // The links have not changed: steps are slow for another reason.
      Answered(policy, view.now);
    }
  } else if (pause_.IsOver(view.now) &&
             IsSuspicious(policy.windows, policy.windows_over, policy.threshold)) {
    Suspect(view, links, out);
  }
  return false;
}

void LinkDrift::NoticeForChange(const View& view, LinkSurvey& links, Outbox& out) {
  if (noticed_ || !CanLook(view, links) || FindChange(view, links, out)) {
    return;
  }
  if (!suspected_ && pause_.IsOver(view.now) && IsSuspicious(1, 1, view.policy.threshold)) {
    Suspect(view, links, out);
  }
}

void LinkDrift::Suspect(const View& view, LinkSurvey& links, Outbox& out) {
  const Series& series = series_.begin()->second;  // A step takes equally long for all members.
  std::vector<double> newest;
  for (const Window& window : series.newest) {
    newest.push_back(window.step);
  }
  suspected_ = true;
  out.Log("links_suspected",
          {{"usual_seconds", UsualOf(series).step}, {"seconds", MedianOf(std::move(newest))}});
  links.MeasureAgain(view.generations.held()->plan.members, view.roster);
}

// Finds links that have changed. The places may be others than before, because an emulated rate
// makes a place of its own; so pairs are matched by their members.
bool LinkDrift::FindChange(const View& view, const LinkSurvey& links, Outbox& out) {
  const std::vector<std::string>& names = view.generations.held()->plan.members;
  const std::map<std::string, int> places = PlacesByWorker(planned_);
  const std::map<std::pair<int, int>, Rates> planned = RatesByPlaces(planned_.links);
  const wire::Links now = links.LinksOf(names, view.roster);
  const auto members = static_cast<int>(names.size());
  const double factor = view.policy.link_factor;
  int64_t changed = 0;
  double most = factor;
  for (const wire::Links::Pair& pair : now.pairs()) {
    const std::optional<int> a = MemberOf(now, members, pair.a(), -1);
    const std::optional<int> b = MemberOf(now, members, pair.b(), a.value_or(-1));
    if (!a || !b) {
      continue;
    }
    const std::string& one = names[static_cast<size_t>(*a)];
    const std::string& other = names[static_cast<size_t>(*b)];
    const int first = places.at(one);
    const int second = places.at(other);
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
        noticed_ = Change{.from = turned ? other : one,
                          .to = turned ? one : other,
                          .planned = was,
                          .measured = is};
      }
    }
    changed += counts ? 1 : 0;
  }
  if (changed > 0 && noticed_ != logged_) {
    logged_ = noticed_;
    out.Log("link_drift", {{"from", noticed_->from},
                           {"to", noticed_->to},
                           {"planned_bytes_per_second", noticed_->planned},
                           {"bytes_per_second", noticed_->measured},
                           {"pairs", changed}});
  }
  return changed > 0;
}

void LinkDrift::Answered(const DriftPolicy& policy, Time now) {
  for (auto& [member, series] : series_) {  // The newest window may be reported once more.
    series.first.clear();
    series.newest.clear();
  }
  pause_.Begin(policy, now);
}

}  // namespace heddle::elastic
