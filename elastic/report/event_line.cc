#include "elastic/report/event_line.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>

#include <fmt/format.h>

namespace heddle::elastic {
namespace {

// A list or an object that is longer is not for people.
constexpr size_t kMaxRawBytes = 200;

// What stands in braces is a field.
const std::map<std::string, std::string, std::less<>>& Sentences() {
  static const std::map<std::string, std::string, std::less<>> kSentences = {
      {"job_started", "job {job}: {steps} steps, {workers} workers"},
      {"worker_joined", "{worker} joined: host {host}, pid {pid}"},
      {"worker_refused", "{worker} of host {host} is refused: {reason}"},
      {"worker_left", "{worker} left: {reason}"},
      {"worker_lost", "{worker} is lost: {reason}"},
      {"worker_quarantined",
       "{worker} was lost {short_lives} times in a row shortly after it came: held off for "
       "{seconds} s"},
      {"suspended",
       "suspended after step {step}, {steps_repeated} steps will be repeated {reason}"},
      {"cut_off", "none of {workers} workers is heard"},
      {"losses_held",
       "nothing shows that {suspects} of {workers} workers live: they are held for {seconds} s"},
      {"losses_released", "held for {seconds} s: {reason}"},
      {"heard_again", "a worker is heard again, after {seconds} s"},
      {"links_measured", "{from} and {to}: {result} {reason}"},
      {"plan", "generation {generation} is in force: {predicted_step_seconds} s a step predicted"},
      {"guarantee", "losses of generation {generation}: {guarantee} {reason}"},
      {"decision", "generation {generation} follows {follows} ({cause}): {choice}, {reason}"},
      {"plan_kept", "generation {generation} stays ({cause}): {reason}"},
      {"plan_outcome",
       "a step of generation {generation} takes {realised_seconds} s: {promised_seconds} s "
       "promised, {before_seconds} s before ({verdict})"},
      {"state_moved", "{bytes} bytes of state from {sources}"},
      {"resumed", "training goes on after {seconds} s; {steps_repeated} steps are repeated"},
      {"recovered",
       "the job is where it had been, after {seconds} s from {source}; {predicted_seconds} s were "
       "predicted"},
      {"step", "step {step}: loss {loss}, {seconds} s, generation {generation}"},
      {"validation", "step {step}: validation loss {loss}"},
      {"checkpoint", "step {step}: {bytes} bytes in {seconds} s"},
      {"checkpoint_failed", "step {step}: {reason}"},
      {"checkpoint_skipped", "step {step}: a worker still wrote the one before"},
      {"checkpoint_refused", "step {step}: {reason}"},
      {"recovery_source", "the state comes from {chosen}, after step {step}"},
      {"replica_refused", "the snapshot of step {step}, generation {generation}: {reason}"},
      {"state_refused",
       "{worker} refuses the state after step {step} from {from}: {what} has the hash {found}, "
       "{expected} was sent"},
      {"state_disagrees",
       "unlike replicas of the state after step {step}, of {workers} (majority: {majority}): "
       "{what}"},
      {"drift", "{worker} takes {slowdown} times as long as profiled"},
      {"links_suspected",
       "a step takes {seconds} s, and took {usual_seconds} s: the links are measured again"},
      {"link_drift",
       "{from} to {to}: {bytes_per_second} bytes/s, {planned_bytes_per_second} planned ({pairs} "
       "pairs)"},
      {"drain_cancelled", "{worker} stays after all"},
      {"drain_refused", "{worker} stays: {reason}"},
      {"paused", "{reason}"},
      {"store_stalled", "{reason}"},
      {"store_works", "after {seconds} s"},
      {"coordinator_restarted", "generation {generation} goes on"},
      {"warning", "{message}"},
      {"job_failed", "{reason}"},
      {"job_finished", "step {step}: loss {loss}"}};
  return kSentences;
}

std::string TextOfValue(const LogEvent::Value& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    return std::to_string(*integer);
  }
  if (const auto* real = std::get_if<double>(&value)) {
    return fmt::format("{:.4g}", *real);
  }
  if (const auto* text = std::get_if<std::string>(&value)) {
    return *text;
  }
  const std::string& raw = std::get<RawJson>(value).text;
  return raw.size() <= kMaxRawBytes ? raw : raw.substr(0, kMaxRawBytes) + "...";
}

std::string Fill(const std::string& sentence, const LogEvent& event) {
  std::string text;
  for (size_t at = 0; at < sentence.size();) {
    const size_t open = sentence.find('{', at);
    text += sentence.substr(at, open - at);
    if (open == std::string::npos) {
      break;
    }
    const size_t close = sentence.find('}', open);
    const LogEvent::Value* value = event.Find(sentence.substr(open + 1, close - open - 1));
    text += value == nullptr ? "?" : TextOfValue(*value);
    at = close + 1;
  }
  return text;
}

}  // namespace

std::string FormatEventTime(double seconds_since_epoch) {
  // Years of four digits: what is beyond is no time of a run.
  const double inside = std::isfinite(seconds_since_epoch)
                            ? std::clamp(seconds_since_epoch, 0.0, 253402300799.0)
                            : 0.0;
  const auto milliseconds = static_cast<int64_t>(std::floor(inside * 1000 + 0.5));
  const auto seconds = static_cast<std::time_t>(milliseconds / 1000);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     milliseconds % 1000);
}

std::string EventLine(const RunEvent& event) {
  std::string text;
  if (const auto sentence = Sentences().find(event.event.kind); sentence != Sentences().end()) {
    text = Fill(sentence->second, event.event);
  } else {
    for (const auto& [name, value] : event.event.fields) {
      text += (text.empty() ? "" : "  ") + name + "=" + TextOfValue(value);
    }
  }
  std::string line =
      fmt::format("{}  {:<18}  {}", FormatEventTime(event.time), event.event.kind, text);
  std::ranges::replace_if(
      line, [](char c) { return (c >= 0 && c < ' ') || c == '\x7f'; }, '?');
  return line;
}

}  // namespace heddle::elastic
