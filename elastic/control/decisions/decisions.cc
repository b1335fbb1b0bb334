#include "elastic/control/decisions/decisions.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/yaml/quote.h"

namespace heddle::elastic {
namespace {

// The most evidence that is kept: a worker that joins and dies again and again must not fill the
// log.
constexpr size_t kMaxEvidence = 64;

// Assumed seconds of stopping, planning and connecting, until a recovery of the job has measured
// them.
constexpr double kAssumedOverheadSeconds = 0.5;
// How many overheads are kept. Their median counts, so that one slow recovery does not mislead the
// next.
constexpr size_t kOverheadsKept = 5;

// True for causes of a formation or change: a loss during that is the cause of what follows.
bool IsOfChange(Cause cause) {
  return cause == Cause::kForm || cause == Cause::kJoin || cause == Cause::kLeave ||
         cause == Cause::kDrift || cause == Cause::kImprove || cause == Cause::kTakeBack;
}

class JsonObject {
 public:
  void Add(const char* name, const std::string& value) {
    if (!value.empty()) {
      AddRaw(name, QuoteJson(value));
    }
  }
  void Add(const char* name, std::optional<double> value) {
    if (value && std::isfinite(*value)) {
      AddRaw(name, fmt::format("{:.9g}", *value));
    }
  }
  void AddRaw(const char* name, const std::string& value) {
    text_ += (text_.empty() ? "" : ", ") + QuoteJson(name) + ": " + value;
  }
  std::string Text() const { return "{" + text_ + "}"; }

 private:
  std::string text_;
};

template <typename Items, typename ToText>
std::string JsonList(const Items& items, ToText to_text) {
  std::string text;
  for (const auto& item : items) {
    text += (text.empty() ? "" : ", ") + to_text(item);
  }
  return "[" + text + "]";
}

std::string ToJson(const Evidence& evidence) {
  JsonObject object;
  object.Add("worker", evidence.worker);
  object.Add("what", evidence.what);
  object.Add("silent_seconds", evidence.silent_seconds);
  object.Add("slowdown", evidence.slowdown);
  if (!evidence.accusers.empty()) {
    object.AddRaw("accusers", JsonList(evidence.accusers, QuoteJson));
  }
  return object.Text();
}

std::string ToJson(const Alternative& alternative) {
  JsonObject object;
  object.Add("what", alternative.what);
  if (alternative.step) {
    object.AddRaw("step", std::to_string(*alternative.step));
  }
  object.Add("predicted_seconds", alternative.seconds);
  object.Add("note", alternative.note);
  return object.Text();
}

std::string WhyNot(Source source, const JobPolicy& policy) {
  switch (source) {
    case Source::kLive:
      return "the workers' tensors are not all there";
    case Source::kReplicas:
      return policy.replicate_every > 0 ? "no snapshot in memory is whole" : "none are kept";
    case Source::kCheckpoint:
    case Source::kInitial:
      break;
  }
  return "there is none";
}

}  // namespace

const char* NameOf(Cause cause) {
  switch (cause) {
    case Cause::kForm:
      return "form";
    case Cause::kJoin:
      return "join";
    case Cause::kLeave:
      return "leave";
    case Cause::kDrift:
      return "drift";
    case Cause::kImprove:
      return "improve";
    case Cause::kTakeBack:
      return "take_back";
    case Cause::kLoss:
      return "loss";
    case Cause::kFailure:
      return "failure";
    case Cause::kUnreadable:
      return "unreadable";
    case Cause::kDisagreement:
      return "disagreement";
    case Cause::kRestart:
      return "restart";
  }
  return "";
}

// ---- What is under way ----

void Decisions::Note(Evidence evidence) {
  const auto same = [&](const Evidence& other) {
    return other.worker == evidence.worker && other.what == evidence.what;
  };
  if (std::ranges::any_of(evidence_, same)) {
    return;
  }
  if (evidence_.size() < kMaxEvidence) {
    evidence_.push_back(std::move(evidence));
  } else {
    ++more_evidence_;
  }
}

void Decisions::Begin(Cause cause) {
  if (!cause_ || IsOfChange(*cause_)) {
    cause_ = cause;
  }
}

void Decisions::Drop() {
  cause_.reset();
  evidence_.clear();
  more_evidence_ = 0;
  alternatives_.clear();
  choice_.clear();
  reason_.clear();
  predicted_seconds_.reset();
  source_seconds_.reset();
  scale_.reset();
}

double Decisions::Overhead() const {
  if (overheads_.empty()) {
    return kAssumedOverheadSeconds;
  }
  std::vector<double> sorted(overheads_.begin(), overheads_.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted[sorted.size() / 2];
}

void Decisions::WeighSources(const std::vector<SourceOption>& options, const JobPolicy& policy) {
  const double overhead = Overhead();
  alternatives_.clear();
  for (const SourceOption& option : options) {
    alternatives_.push_back(
        {.what = NameOf(option.source), .seconds = overhead + option.seconds, .step = option.step});
  }
  const SourceOption& chosen = options.front();
  choice_ = NameOf(chosen.source);
  source_seconds_ = chosen.seconds;
  scale_.reset();
  predicted_seconds_ = overhead + chosen.seconds;
  if (options.size() == 1) {
    reason_ = "nothing else has the state";
  } else if (policy.recovery.prefer == chosen.source) {
    reason_ = "elastic.recover_from names it";
  } else {
    reason_ = fmt::format("the quickest of {}, by {:.3g} s", options.size(),
                          options[1].seconds - options[0].seconds);
  }
  for (const Source source : {Source::kLive, Source::kReplicas, Source::kCheckpoint}) {
    if (std::ranges::find(options, source, &SourceOption::source) == options.end()) {
      alternatives_.push_back({.what = NameOf(source), .note = WhyNot(source, policy)});
    }
  }
}

void Decisions::WeighPlans(std::vector<Alternative> plans,
                           std::string choice,
                           std::string reason,
                           double pause_seconds,
                           std::optional<double> scale) {
  alternatives_ = std::move(plans);
  predicted_seconds_ = pause_seconds;
  scale_ = scale;
  choice_ = std::move(choice);
  reason_ = std::move(reason);
}

// ---- What came of it ----

RawJson Decisions::EvidenceJson() const {
  std::vector<Evidence> evidence = evidence_;
  if (more_evidence_ > 0) {
    evidence.push_back({.worker = "", .what = fmt::format("and {} more", more_evidence_)});
  }
  return {JsonList(evidence, [](const Evidence& item) { return ToJson(item); })};
}

RawJson Decisions::AlternativesJson() const {
  return {JsonList(alternatives_, [](const Alternative& item) { return ToJson(item); })};
}

std::string Decisions::CauseName() const {
  return cause_ ? NameOf(*cause_) : "";
}

void Decisions::LogKept(int64_t generation, Outbox& out) {
  out.Log("plan_kept", {{"generation", generation},
                        {"cause", CauseName()},
                        {"evidence", EvidenceJson()},
                        {"alternatives", AlternativesJson()},
                        {"choice", choice_},
                        {"reason", reason_},
                        {"scale", scale_.value_or(NAN)}});
  Drop();
}

void Decisions::LogDecision(const Outcome& outcome, Outbox& out) {
  out.Log("decision", {{"generation", outcome.generation},
                       {"follows", outcome.follows},
                       {"cause", CauseName()},
                       {"evidence", EvidenceJson()},
                       {"alternatives", AlternativesJson()},
                       {"choice", choice_},
                       {"reason", reason_},
                       {"scale", scale_.value_or(NAN)},
                       {"predicted_seconds", predicted_seconds_.value_or(NAN)},
                       {"seconds", outcome.pause ? Seconds(*outcome.pause) : NAN}});
  recovery_.reset();
  if (outcome.since) {
    recovery_ = Recovery{.generation = outcome.generation,
                         .reached_step = outcome.reached_step,
                         .since = *outcome.since,
                         .predicted_seconds = predicted_seconds_,
                         .source_seconds = source_seconds_,
                         .source = choice_,
                         .has_waited = outcome.has_waited};
  }
  Drop();
}

void Decisions::NoteStep(int64_t step, Time now, Outbox& out) {
  if (!recovery_ || step < recovery_->reached_step) {
    return;
  }
  const Recovery over = *std::exchange(recovery_, std::nullopt);
  const double seconds = Seconds(now - over.since);
  if (over.source_seconds && !over.has_waited) {
    overheads_.push_back(std::max(0.0, seconds - *over.source_seconds));
    if (overheads_.size() > kOverheadsKept) {
      overheads_.pop_front();
    }
  }
  out.Log("recovered", {{"generation", over.generation},
                        {"source", over.source},
                        {"predicted_seconds", over.predicted_seconds.value_or(NAN)},
                        {"seconds", seconds}});
}

}  // namespace heddle::elastic
