/// \file
/// Where the bits of the job's state come from, through all generations and back to checkpoints; and
/// which workers a job refuses that demands a guarantee.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "elastic/control/membership/roster.h"
#include "elastic/control/outbox.h"
#include "elastic/control/provenance.h"

namespace heddle::elastic {

/// The provenance of the state after each step. Thread: one caller at a time. A copy is an
/// independent machine.
class Lineage {
 public:
  /// Begins a job. `checkpoint`: the provenance of the checkpoint that it goes on from; nullopt: it
  /// begins from its initial state.
  void BeginJob(const std::optional<Provenance>& checkpoint);
  /// A generation of these members begins, from the state of `source` after `step`: what was
  /// computed after that step no longer counts.
  void BeginGeneration(const std::vector<std::string>& members,
                       Source source,
                       int64_t step,
                       const Roster& roster,
                       const JobPolicy& policy);
  /// Logs the newest provenance, unless it is the one that was logged last.
  void Tell(int64_t generation, Outbox& out);

  /// The provenance of the state that the generation in force computes.
  const Provenance& newest() const { return Before(INT64_MAX); }
  /// The provenance of the state after `step`.
  const Provenance& Of(int64_t step) const { return Before(step); }
  /// Why a worker with this arithmetic may not join, in words: its steps would void the guarantee
  /// that the job demands. Empty: it may. The state computed so far decides what it has to be like,
  /// or else the workers that have joined.
  std::string WhyRefused(const std::string& name,
                         const Arithmetic& arithmetic,
                         const Roster& roster,
                         const JobPolicy& policy) const;

  /// `checkpoint`: as in BeginJob, in case no generation had begun.
  void Restore(const DurableState& durable, const std::optional<Provenance>& checkpoint);
  void Store(DurableState& durable) const { durable.lineage = stretches_; }

 private:
  /// That of the last stretch that begins before `step`.
  const Provenance& Before(int64_t step) const;

  std::vector<DurableStretch> stretches_;  ///< Ascending by step.
  std::optional<Provenance> told_;         ///< What was logged last; nullopt: nothing yet.
};

}  // namespace heddle::elastic
