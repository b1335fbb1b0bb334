/// \file
/// Whether the members of a generation hold the state that its plan says, and whoever holds the
/// same part of it holds the same bits.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "elastic/control/durable.h"
#include "elastic/protocol/protocol.pb.h"

namespace heddle::elastic {

/// By member.
using Certificates = std::map<std::string, wire::Certificate>;

/// Who is not to be gone on from.
struct Disagreement {
  std::set<std::string> workers;
  /// Each of them differs from what most of those say who should have the same. Otherwise there is
  /// no majority, and the workers are all of them.
  bool decided = true;
  /// Those whose replicas differ, and who is of the majority; nobody: there is none.
  std::map<int32_t, std::set<std::string>> parameters = {};
  std::string what;  ///< The first difference, for people.
};

/// None: every member of the plan is of `step`, in all that is the same for all like the others,
/// holds exactly the parameters that the plan gives it, so that each is held as planned, and all
/// holders of a parameter have one digest of it. One who says nothing differs. Thread: pure.
std::optional<Disagreement> FindDisagreement(const PlanOutcome& plan,
                                             int64_t step,
                                             const Certificates& said);

/// Comparisons while steps run. Thread: one caller at a time. A copy is an independent machine.
class Agreement {
 public:
  /// All replicas of the state after this step were compared and are the same. 0: none were.
  int64_t step() const { return step_; }
  /// A member of the generation in force tells its digests. The comparison is made when the last
  /// one has; a step of which one is lost is not compared.
  std::optional<Disagreement> Take(const std::string& worker,
                                   const wire::Certificate& certificate,
                                   const DurableGeneration& held);
  /// Whether the worker was in the wrong before, and its state was given to it anew.
  bool Suspect(const std::string& worker) { return !suspects_.insert(worker).second; }
  /// Of the state after `step`, which was compared.
  void BeginGeneration(int64_t step);
  void Forget(const std::string& worker) { suspects_.erase(worker); }

  void Restore(const DurableState& durable) { step_ = durable.agreed_step; }
  void Store(DurableState& durable) const { durable.agreed_step = step_; }

 private:
  int64_t step_ = 0;
  std::map<int64_t, Certificates> said_;  ///< By step, the newest few.
  std::set<std::string> suspects_;
};

}  // namespace heddle::elastic
