#include "elastic/control/provenance.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace heddle::elastic {
namespace {

using Named = std::pair<Guarantee, std::string_view>;
constexpr std::array kNames = {
    Named(Guarantee::kNone, "none"), Named(Guarantee::kUnknown, "unknown"),
    Named(Guarantee::kPerPlan, "per-plan"), Named(Guarantee::kPlanInvariant, "plan-invariant")};

std::string ValueOf(const Arithmetic& arithmetic, const std::string& part) {
  const auto found = arithmetic.find(part);
  return found == arithmetic.end() ? "unknown" : found->second;
}

}  // namespace

std::string_view NameOf(Guarantee guarantee) {
  return std::ranges::find(kNames, guarantee, &Named::first)->second;
}

Guarantee GuaranteeNamed(std::string_view name) {
  const auto* const found = std::ranges::find(kNames, name, &Named::second);
  return found == kNames.end() ? Guarantee::kUnknown : found->first;
}

std::string DifferenceOf(const Arithmetic& one, const Arithmetic& other) {
  std::set<std::string> parts;
  for (const Arithmetic* const arithmetic : {&one, &other}) {
    for (const auto& [part, value] : *arithmetic) {
      parts.insert(part);
    }
  }
  std::string text;
  for (const std::string& part : parts) {
    if (ValueOf(one, part) != ValueOf(other, part)) {
      text += fmt::format("{}{} {}, not {}", text.empty() ? "" : "; ", part, ValueOf(one, part),
                          ValueOf(other, part));
    }
  }
  return text;
}

Provenance AfterStepsOf(const std::vector<Computing>& members,
                        const Provenance& before,
                        bool exact) {
  if (before.guarantee == Guarantee::kNone) {
    return before;
  }
  if (!exact) {
    return {.guarantee = Guarantee::kNone,
            .reason = "the order of its sums depends on the plan (determinism: relaxed)"};
  }
  if (before.guarantee != Guarantee::kPlanInvariant || members.empty()) {
    return before;
  }
  const Computing& first = members.front();
  for (const Computing& member : members) {
    if (member.arithmetic != first.arithmetic) {
      return {.guarantee = Guarantee::kPerPlan,
              .reason = fmt::format("{} computes unlike {}: {}", member.name, first.name,
                                    DifferenceOf(member.arithmetic, first.arithmetic))};
    }
  }
  if (!before.arithmetic.empty() && first.arithmetic != before.arithmetic) {
    return {.guarantee = Guarantee::kPerPlan,
            .reason = fmt::format("{} computes unlike the workers of the steps before: {}",
                                  first.name, DifferenceOf(first.arithmetic, before.arithmetic))};
  }
  return {.arithmetic = first.arithmetic};
}

}  // namespace heddle::elastic
