/// \file
/// Where the bits of a state come from, and what is promised of them. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::elastic {

/// What a worker's bits depend on, beside its program: the values of parts such as "processor",
/// "blas" and "threads", by name. Workers with equal ones compute the same bits.
using Arithmetic = std::map<std::string, std::string>;

/// What is promised of the bits of losses and weights, from the weakest to the strongest.
enum class Guarantee : uint8_t {
  kNone,           ///< Nothing: sums depend on the plan, or the state was rounded.
  kUnknown,        ///< It is not recorded what computed the state.
  kPerPlan,        ///< The same plans, at the same steps on the same workers, give the same bits.
  kPlanInvariant,  ///< Any plans, on workers like these, give the same bits.
};

/// "none", "unknown", "per-plan" or "plan-invariant".
std::string_view NameOf(Guarantee guarantee);
/// The guarantee of this name; kUnknown for any other text.
Guarantee GuaranteeNamed(std::string_view name);

/// Where the bits of a state come from: from all steps that it is made of.
struct Provenance {
  Guarantee guarantee = Guarantee::kPlanInvariant;
  std::string reason = {};  ///< Why it is not plan-invariant; empty: it is.
  /// The arithmetic of the workers that computed its steps. Empty: no step was computed, or its
  /// workers were unlike, or are not known.
  Arithmetic arithmetic = {};
  friend bool operator==(const Provenance&, const Provenance&) = default;
};

/// A worker that computes steps.
struct Computing {
  std::string name;
  Arithmetic arithmetic;
};

/// How `one` differs from `other`, in words: "blas Haswell, not SkylakeX; threads 1, not 2". Empty:
/// they are equal.
std::string DifferenceOf(const Arithmetic& one, const Arithmetic& other);

/// The provenance of a state after `members` have computed steps from a state of the provenance
/// `before`. `exact`: sums do not depend on the plan.
Provenance AfterStepsOf(const std::vector<Computing>& members,
                        const Provenance& before,
                        bool exact);

}  // namespace heddle::elastic
