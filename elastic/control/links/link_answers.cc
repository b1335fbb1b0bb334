// The replies of the two ends of a measurement, and its result.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/yaml/quote.h"
#include "elastic/control/links/link_survey.h"
#include "elastic/protocol/link_figures.h"

namespace heddle::elastic {
namespace {

bool IsSound(const wire::LinksMeasured::Link& link) {
  return link.error().empty() && IsLinkSound(link.latency_seconds(), link.bytes_per_second());
}

// Why no transport joins a worker to the other, in the worker's words; cut short, because they come
// from outside.
std::string Reason(const std::string& worker, const wire::LinksMeasured& answer) {
  std::string reason = answer.error();
  for (const auto& link : answer.links()) {
    if (link.error().empty() && IsSound(link)) {
      continue;
    }
    reason += fmt::format(
        "{}{}: {}", reason.empty() ? "" : "; ", link.transport().substr(0, 16),
        link.error().empty() ? "figures that no link has" : link.error().substr(0, 120));
    if (reason.size() > 400) {
      break;
    }
  }
  return reason.empty() ? "" : worker + ": " + reason.substr(0, 400);
}

std::string ToJson(const std::vector<wire::Links::Transport>& transports) {
  std::string text = "{";
  for (const auto& link : transports) {
    text += fmt::format(R"({}{}: {{"latency_seconds": {:.3g}, "there": {:.4g}, "back": {:.4g}}})",
                        text.size() > 1 ? ", " : "", QuoteJson(link.name()),
                        (link.latency_seconds() + link.back_latency_seconds()) / 2,
                        link.bytes_per_second(), link.back_bytes_per_second());
  }
  return text + "}";
}

}  // namespace

// Each of the two ends may have a reason of its own.
std::string LinkSurvey::ReasonOf(const Measurement& measurement) {
  const std::string there = Reason(measurement.workers[0], *measurement.answers[0]);
  const std::string back = Reason(measurement.workers[1], *measurement.answers[1]);
  return there + (there.empty() || back.empty() ? "" : "; ") + back;
}

void LinkSurvey::TakeAnswer(const Worker& worker,
                            const wire::LinksMeasured& message,
                            const Roster& roster,
                            const LinkPolicy& policy,
                            Outbox& out) {
  const auto found = measuring_.find(message.request());
  if (found == measuring_.end()) {
    return;
  }
  Measurement& measurement = found->second;
  for (const size_t rank : {0U, 1U}) {
    if (measurement.workers[rank] == worker.name) {
      measurement.answers[rank] = message;
    }
  }
  if (measurement.answers[0] && measurement.answers[1]) {
    EndMeasurement(message.request(), "", roster, policy, out);
  }
}

// Ends a measurement whose ends have both replied; otherwise `failure` says what happened instead.
void LinkSurvey::EndMeasurement(int64_t request,
                                const std::string& failure,
                                const Roster& roster,
                                const LinkPolicy& policy,
                                Outbox& out) {
  const Measurement measurement = std::move(measuring_.extract(request).mapped());
  for (const std::string& name : measurement.workers) {
    freed_hosts_.insert(roster.at(name).host);
  }
  std::vector<wire::Links::Transport> joined;
  std::string reason = failure;
  if (failure.empty()) {
    joined = JoinAnswers(*measurement.answers[0], *measurement.answers[1], policy.transports);
    reason = joined.empty() ? ReasonOf(measurement) : "";
  }
  if (failure.empty() || failure == "timeout") {
    // If a repeated measurement fails, the former figures stay in use.
    const bool again = doubtful_.erase(measurement.places) > 0;
    if (!joined.empty() || !again) {
      measured_[measurement.places] = joined;
    }
  }
  const std::string result = !failure.empty() ? failure : joined.empty() ? "failed" : "ok";
  out.Log("links_measured", {{"from", measurement.workers[0]},
                             {"to", measurement.workers[1]},
                             {"result", result},
                             {"transports", RawJson{ToJson(joined)}},
                             {"reason", reason}});
}

void LinkSurvey::CheckDeadlines(const Roster& roster,
                                const LinkPolicy& policy,
                                Time now,
                                Outbox& out) {
  std::vector<int64_t> late;
  for (const auto& [request, measurement] : measuring_) {
    if (now >= measurement.deadline) {
      late.push_back(request);
    }
  }
  for (const int64_t request : late) {
    EndMeasurement(request, "timeout", roster, policy, out);
  }
  if (until_ && now >= *until_) {
    until_.reset();
    size_t left = measuring_.size();
    for (const auto& entry : unmeasured_) {
      left += static_cast<size_t>(
          std::count_if(entry.second.begin(), entry.second.end(),
                        [&](const Place& partner) { return entry.first <= partner; }));
    }
    if (left == 0) {
      return;  // All pairs were measured since a plan last asked.
    }
    late_ = true;
    out.Log("warning",
            {{"message", fmt::format("the links of {} pairs are not measured after {:.0f} s", left,
                                     Seconds(policy.wait))}});
  }
}

}  // namespace heddle::elastic
