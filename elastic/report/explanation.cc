#include "elastic/report/explanation.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "elastic/report/event_fields.h"
#include "elastic/report/event_line.h"

namespace heddle::elastic {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxKept = 5;           // The newest say enough.
constexpr size_t kMaxNamed = 8;          // Generations in an error.
constexpr int kAlternativeColumns = 34;  // Up to the figures.

struct CauseWords {
  const char* cause;
  const char* words;
};
constexpr CauseWords kCauses[] = {
    {"form", "there was no generation, and enough workers had come"},
    {"join", "a worker came while another generation trained"},
    {"leave", "a member was to leave"},
    {"drift", "the speed of a member, or a link, had changed for good"},
    {"improve", "a recovery had taken the first good plan, and a better one was looked for"},
    {"take_back", "a change of plan had made steps slower"},
    {"loss", "a worker was lost"},
    {"failure", "members failed, and nobody was to blame"},
    {"unreadable", "what the state was to come from could not be read"},
    {"disagreement", "workers held unlike replicas of the state"},
    {"restart", "the coordinator was started again"}};

std::string WordsOf(const std::string& cause) {
  const auto* found =
      std::ranges::find_if(kCauses, [&](const CauseWords& c) { return c.cause == cause; });
  return found == std::end(kCauses) ? cause : found->words;
}

std::optional<double> NumberIn(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number() ? std::optional(found->get<double>())
                                                     : std::nullopt;
}

std::string TextIn(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::optional<double> NumberIf(const LogEvent& event, const std::string& field) {
  return event.Find(field) == nullptr ? std::nullopt : std::optional(NumberOf(event, field));
}

// A field that is a list of objects.
Result<std::vector<Json>> ListOf(const LogEvent& event, const std::string& field) {
  const LogEvent::Value* value = event.Find(field);
  const auto* raw = value == nullptr ? nullptr : std::get_if<RawJson>(value);
  const Json list =
      raw == nullptr ? Json() : Json::parse(raw->text, nullptr, /*allow_exceptions=*/false);
  if (!list.is_array() || !std::ranges::all_of(list, [](const Json& j) { return j.is_object(); })) {
    return InvalidArgumentError("the decision's field {} is no list of objects", field);
  }
  return std::vector<Json>(list.begin(), list.end());
}

std::string EvidenceLine(const Json& evidence) {
  const std::string worker = TextIn(evidence, "worker");
  std::string line = (worker.empty() ? "" : worker + ": ") + TextIn(evidence, "what");
  if (const auto slowdown = NumberIn(evidence, "slowdown")) {
    line += fmt::format("; it takes {:.3g} times as long as profiled", *slowdown);
  }
  if (const auto silent = NumberIn(evidence, "silent_seconds")) {
    line += fmt::format("; its last word was {:.2f} s before", *silent);
  }
  std::string accusers;
  if (const auto found = evidence.find("accusers"); found != evidence.end() && found->is_array()) {
    for (const Json& accuser : *found) {
      accusers +=
          (accusers.empty() ? "" : ", ") + (accuser.is_string() ? accuser.get<std::string>() : "");
    }
  }
  return line + (accusers.empty() ? "" : "; reported by " + accusers);
}

std::string AlternativeLine(const Json& alternative, const std::string& choice) {
  std::string what = TextIn(alternative, "what");
  const char* mark = what == choice ? "*" : " ";
  if (const auto step = NumberIn(alternative, "step")) {
    what += fmt::format(", after step {:.0f}", *step);
  }
  const auto seconds = NumberIn(alternative, "predicted_seconds");
  const std::string note = TextIn(alternative, "note");
  const std::string cost =
      seconds ? fmt::format("{:.2f} s", *seconds)
              : (note.empty() ? std::string("not known") : "not possible: " + note);
  return fmt::format("{} {:<{}} {}", mark, what, kAlternativeColumns, cost);
}

std::string Compared(double predicted, double actual) {
  const double percent = predicted > 0 ? 100 * (actual / predicted - 1) : 0;
  return fmt::format("{:.2f} s predicted, {:.2f} s actual ({:.0f} % {})", predicted, actual,
                     std::abs(percent), percent >= 0 ? "more" : "less");
}

}  // namespace

void Explanations::Note(const RunEvent& event) {
  const LogEvent& log = event.event;
  const auto generation = static_cast<int64_t>(NumberOf(log, "generation"));
  if (log.kind == "decision") {
    generations_[generation].decision = event;
    if (const auto before = static_cast<int64_t>(NumberOf(log, "follows")); before > 0) {
      generations_[before].followed_by = generation;
    }
  } else if (log.kind == "plan") {
    generations_[generation].predicted_step_seconds = NumberOf(log, "predicted_step_seconds");
  } else if (log.kind == "recovered") {
    generations_[generation].recovered = event;
  } else if (log.kind == "plan_kept") {
    Generation& kept = generations_[generation];
    kept.kept.push_back(event);
    if (kept.kept.size() > kMaxKept) {
      kept.kept.erase(kept.kept.begin());
      ++kept.kept_before;
    }
  }
}

std::optional<int64_t> Explanations::newest() const {
  for (auto newest = generations_.rbegin(); newest != generations_.rend(); ++newest) {
    if (newest->second.decision) {
      return newest->first;
    }
  }
  return std::nullopt;
}

Result<const Explanations::Generation*> Explanations::Find(int64_t generation) const {
  const auto found = generations_.find(generation);
  if (found != generations_.end() && found->second.decision) {
    return &found->second;
  }
  std::string others;
  size_t count = 0;
  for (auto other = generations_.rbegin(); other != generations_.rend() && count < kMaxNamed;
       ++other) {
    if (other->second.decision) {
      others = std::to_string(other->first) + (count++ == 0 ? "" : ", ") + others;
    }
  }
  if (count == 0) {
    return NotFoundError("no generation of this run has a decision yet");
  }
  return NotFoundError("generation {} has no decision; the newest that have one: {}", generation,
                       others);
}

Result<std::string> Explanations::EntryOf(int64_t generation) const {
  HEDDLE_ASSIGN_OR_RETURN(const Generation* found, Find(generation));
  return found->decision->line;
}

Result<std::string> Explanations::Explain(int64_t generation) const {
  HEDDLE_ASSIGN_OR_RETURN(const Generation* found, Find(generation));
  const LogEvent& decision = found->decision->event;
  HEDDLE_ASSIGN_OR_RETURN(const auto evidence, ListOf(decision, "evidence"));
  HEDDLE_ASSIGN_OR_RETURN(const auto alternatives, ListOf(decision, "alternatives"));
  const auto follows = static_cast<int64_t>(NumberOf(decision, "follows"));
  const std::string choice = TextOf(decision, "choice");
  const bool is_change = choice == "replan";

  std::string text =
      fmt::format("generation {}, in force since {}{}\n\nWhat happened\n  {}\n\nWhat was known\n",
                  generation, FormatEventTime(found->decision->time),
                  follows > 0 ? fmt::format(", after generation {}", follows) : "",
                  WordsOf(TextOf(decision, "cause")));
  for (const Json& item : evidence) {
    text += "  " + EvidenceLine(item) + "\n";
  }
  text += fmt::format("\nWhat could be done, with the predicted seconds {}\n",
                      is_change ? "of the rest of the job" : "until the job is where it had been");
  for (const Json& item : alternatives) {
    text += "  " + AlternativeLine(item, choice) + "\n";
  }
  text += fmt::format("\nWhat was chosen\n  {}: {}\n\nPredicted and actual\n", choice,
                      TextOf(decision, "reason"));
  text += Outcome(*found, is_change);
  const auto before = generations_.find(follows);
  if (found->predicted_step_seconds) {
    text += fmt::format("  a step: {:.3g} s predicted", *found->predicted_step_seconds);
    text += before != generations_.end() && before->second.predicted_step_seconds
                ? fmt::format(", {:.3g} s of generation {}\n",
                              *before->second.predicted_step_seconds, follows)
                : "\n";
  }
  return text + Kept(*found);
}

std::string Explanations::Outcome(const Generation& generation, bool is_change) {
  const LogEvent& decision = generation.decision->event;
  const auto predicted = NumberIf(decision, "predicted_seconds");
  const auto pause = NumberIf(decision, "seconds");
  std::string text;
  if (is_change) {
    return predicted && pause ? "  nobody trained for: " + Compared(*predicted, *pause) + "\n" : "";
  }
  if (pause) {
    text += fmt::format("  nobody trained for {:.2f} s\n", *pause);
  }
  if (generation.recovered) {
    const LogEvent& recovered = generation.recovered->event;
    const double actual = NumberOf(recovered, "seconds");
    const auto expected = NumberIf(recovered, "predicted_seconds");
    text += "  where it had been: " +
            (expected ? Compared(*expected, actual) : fmt::format("{:.2f} s", actual)) + "\n";
  } else if (pause) {
    text += generation.followed_by > 0
                ? fmt::format("  it was not where it had been before generation {} followed\n",
                              generation.followed_by)
                : "  it is not where it had been yet\n";
  }
  return text;
}

std::string Explanations::Kept(const Generation& generation) {
  if (generation.kept.empty()) {
    return "";
  }
  std::string text = "\nWhat was not done while it was in force\n";
  if (generation.kept_before > 0) {
    text += fmt::format("  {} changes before these\n", generation.kept_before);
  }
  for (const RunEvent& kept : generation.kept) {
    text += fmt::format("  {} {}: {}\n", FormatEventTime(kept.time),
                        WordsOf(TextOf(kept.event, "cause")), TextOf(kept.event, "reason"));
  }
  return text;
}

}  // namespace heddle::elastic
