/// \file
/// Whether the members of a generation hold the parameters that its plan gives them, and all
/// replicas of a parameter are bitwise equal.
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

/// State certificates by member name.
using Certificates = std::map<std::string, wire::Certificate>;

/// Members whose state no generation may continue from.
struct Disagreement {
  std::set<std::string> workers;
  /// True if each of them differs from a majority of the members that should hold the same. False
  /// if there is no majority somewhere; `workers` then has all members that differ there.
  bool decided = true;
  /// By parameter whose replicas differ: the members of the majority; empty if there is none.
  std::map<int32_t, std::set<std::string>> parameters = {};
  std::string what;  ///< The first difference, in words.
};

/// By parameter, the workers that held it before a move. Those that got it have a copy from one of
/// them: two equal digests of which one is of a copy are one witness.
using Witnesses = std::map<int32_t, std::set<std::string>>;

/// Compares the certificates of a plan's members. nullopt: every member is at `step`, has the same
/// identity (Certificate.identity), and holds exactly the parameters that the plan gives it, and
/// all holders of a parameter have the same digest of it. A member without a certificate differs.
/// Where a parameter has `witnesses`, a majority has most of them, too. Pure.
std::optional<Disagreement> FindDisagreement(const PlanOutcome& plan,
                                             int64_t step,
                                             const Certificates& said,
                                             const Witnesses& witnesses = {});

/// Comparisons while steps run. Thread: one caller at a time. A copy is an independent machine.
class Agreement {
 public:
  /// The last step after which all replicas of the state were compared and are equal; 0: none were.
  int64_t step() const { return step_; }
  /// Takes the certificate of a member of the generation in force. The last member's triggers the
  /// comparison, and the result is returned. A step of which a certificate is lost is not compared.
  std::optional<Disagreement> Take(const std::string& worker,
                                   const wire::Certificate& certificate,
                                   const DurableGeneration& held);
  /// Marks the worker as suspect. True if it was before: it differs again with a new copy of the
  /// state.
  bool Suspect(const std::string& worker) { return !suspects_.insert(worker).second; }
  /// A generation begins from the state after `step`, which was compared.
  void BeginGeneration(int64_t step);
  void Forget(const std::string& worker) { suspects_.erase(worker); }

  void Restore(const DurableState& durable) { step_ = durable.agreed_step; }
  void Store(DurableState& durable) const { durable.agreed_step = step_; }

 private:
  int64_t step_ = 0;
  std::map<int64_t, Certificates> said_;  ///< Certificates by step, the newest few steps.
  std::set<std::string> suspects_;
};

}  // namespace heddle::elastic
