// A history as text, and back.
#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "tests/elastic/simulation/history/history.h"

namespace heddle::elastic {
namespace {

constexpr std::array kNames = {"kill",
                               "kill_host",
                               "kill_half",
                               "stop",
                               "slow",
                               "join",
                               "join_and_die",
                               "join_absurd",
                               "join_unlike",
                               "drain",
                               "cancel_drain",
                               "notice",
                               "jump_clock",
                               "restart",
                               "cut_power",
                               "crash_actions",
                               "stop_coordinator",
                               "double_coordinator",
                               "lose_store",
                               "jump_coordinator_clock",
                               "refuse_plans",
                               "slow_plans",
                               "store_errors",
                               "slow_store",
                               "crash_in_store",
                               "break_stream",
                               "cut_off",
                               "break_link",
                               "one_way_link",
                               "cut_control",
                               "cut_from_workers",
                               "cut_to_workers",
                               "split",
                               "slow_links",
                               "elsewhere",
                               "late",
                               "prepare_error",
                               "other_program",
                               "damage_checkpoint",
                               "change_moves",
                               "alter",
                               "fail",
                               "stranger",
                               "emulate",
                               "suspend",
                               "cancel"};
static_assert(kNames.size() == kFaultKinds);

// Calls `visit` with each number's name and place.
template <typename Options, typename Visit>
void ForEachNumber(Options& options, Visit visit) {
  visit("seed", options.seed);
  visit("workers", options.workers);
  visit("steps", options.steps);
  visit("step_ms", options.step_ms);
  visit("luck", options.luck);
  visit("hosts", options.hosts);
  visit("domains", options.domains);
  visit("planner_ms", options.planner_ms);
  visit("checkpoint_every", options.checkpoint_every);
  visit("validate_every", options.validate_every);
  visit("digest_every", options.digest_every);
  visit("replicate_every", options.replicate_every);
  visit("replica_copies", options.replica_copies);
  visit("tells_moves", options.tells_moves);
  visit("control_faults_only", options.control_faults_only);
  visit("notices_only", options.notices_only);
  visit("refused_every", options.refused_every);
  visit("stop_on_refused", options.stop_on_refused);
  visit("local", options.local);
  visit("product_patience", options.product_patience);
  visit("patient_calls", options.patient_calls);
  visit("predicted_percent", options.predicted_percent);
  visit("misjudged_percent", options.misjudged_percent);
  visit("unlike_percent", options.unlike_percent);
  visit("noise_percent", options.noise_percent);
  visit("shared_percent", options.shared_percent);
  visit("observes", options.observes);
  visit("arithmetics", options.arithmetics);
  visit("unlike_begin", options.unlike_begin);
  visit("demands_alike", options.demands_alike);
}

template <typename T>
bool Parse(const std::string& text, T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    value = text == "1";
    return text == "0" || text == "1";
  } else {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size();
  }
}

bool ParseFault(const std::string& text, Fault& fault) {
  std::istringstream parts(text);
  std::string at;
  std::string seconds;
  std::string draw;
  return std::getline(parts, at, '/') && std::getline(parts, seconds, '/') &&
         std::getline(parts, draw) && Parse(at, fault.at) && Parse(seconds, fault.seconds) &&
         Parse(draw, fault.draw);
}

}  // namespace

const char* NameOf(FaultKind kind) {
  return kNames[static_cast<size_t>(kind)];
}

std::string TextOf(const SimOptions& history) {
  std::string text;
  const SimOptions defaults;
  const auto add = [&](const std::string& name, const std::string& value) {
    text += (text.empty() ? "" : ",") + name + "=" + value;
  };
  ForEachNumber(history, [&](const char* name, const auto& value) {
    ForEachNumber(defaults, [&](const char* other, const auto& usual) {
      if constexpr (std::is_same_v<decltype(value), decltype(usual)>) {
        if (std::string_view(name) == other && (value != usual || text.empty())) {
          add(name, fmt::format("{:d}", static_cast<int64_t>(value)));
        }
      }
    });
  });
  for (const Fault& fault : history.faults) {
    add(NameOf(fault.kind), fmt::format("{}/{}/{}", fault.at, fault.seconds, fault.draw));
  }
  return text;
}

Result<SimOptions> HistoryFromText(const std::string& text) {
  SimOptions history;
  std::istringstream words(text);
  std::string word;
  while (std::getline(words, word, ',')) {
    const size_t equals = std::min(word.find('='), word.size());
    const std::string name = word.substr(0, equals);
    const std::string value = word.substr(std::min(equals + 1, word.size()));
    bool known = false;
    ForEachNumber(history, [&](const char* number, auto& place) {
      known = known || (name == number && Parse(value, place));
    });
    const auto kind = std::find_if(kNames.begin(), kNames.end(),
                                   [&](const char* other) { return name == other; });
    if (!known && kind != kNames.end()) {
      Fault& fault = history.faults.emplace_back();
      fault.kind = static_cast<FaultKind>(kind - kNames.begin());
      known = ParseFault(value, fault);
    }
    if (!known) {
      return InvalidArgumentError("a history does not say \"{}\"", word);
    }
  }
  return history;
}

}  // namespace heddle::elastic
