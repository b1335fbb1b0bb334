#include "elastic/control/transition/certificate.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/yaml/quote.h"

namespace heddle::elastic {
namespace {

RefusedState RefusalOf(const SourceOption& origin,
                       const std::string& holder,
                       const std::string& receiver,
                       const TransitionContext& context) {
  if (origin.source == Source::kLive) {
    return {
        .holder = holder, .generation = context.generations.held()->number, .receiver = receiver};
  }
  return {.holder = holder,
          .generation = origin.snapshot_generation,
          .step = origin.step,
          .receiver = receiver};
}

template <typename Values, typename Write>
RawJson ListOf(const Values& values, Write write) {
  std::string text;
  for (const auto& value : values) {
    text += (text.empty() ? "" : ", ") + write(value);
  }
  return {"[" + text + "]"};
}

void LogDisagreement(const Disagreement& found,
                     const SourceOption& origin,
                     int64_t generation,
                     TransitionContext& context) {
  context.out.Log(
      "state_disagrees",
      {{"step", origin.step},
       {"generation", generation},
       {"workers", ListOf(found.workers, [](const std::string& name) { return QuoteJson(name); })},
       {"majority", std::string(found.decided ? "yes" : "no")},
       {"parameters",
        ListOf(found.parameters, [](const auto& one) { return std::to_string(one.first); })},
       {"agreed_step", context.agreement.step()},
       {"what", found.what}});
  for (const std::string& name : found.workers) {
    context.decisions.Note(
        {.worker = name,
         .what = fmt::format("its state after step {} differs: {}", origin.step, found.what)});
  }
}

// The parameters that the plan gives the worker; none: it is no member.
std::vector<int32_t> ParametersOf(const PlanOutcome& plan, const std::string& name) {
  const auto rank = static_cast<size_t>(std::find(plan.members.begin(), plan.members.end(), name) -
                                        plan.members.begin());
  return rank < plan.parameters.size() ? plan.parameters[rank] : std::vector<int32_t>();
}

// The holders whose tensors may be wrong: members that differ in something else than parameters,
// and holders of a parameter in which members differ, unless they are of its majority.
std::set<std::string> AmissIn(const Disagreement& found,
                              const SourceOption& origin,
                              const TransitionContext& context) {
  std::set<std::string> amiss;
  if (origin.source != Source::kLive) {
    return amiss;
  }
  const PlanOutcome& plan = context.generations.held()->plan;
  for (const std::string& name : origin.holders) {
    const bool differs = found.workers.count(name) > 0 && found.parameters.empty();
    const bool gave = std::ranges::any_of(ParametersOf(plan, name), [&](int32_t parameter) {
      const auto weighed = found.parameters.find(parameter);
      return weighed != found.parameters.end() && weighed->second.count(name) == 0;
    });
    if (differs || gave) {
      amiss.insert(name);
    }
  }
  return amiss;
}

}  // namespace

bool RefusesHolders(const wire::Ready& message, const SourceOption& origin) {
  const auto& refused = message.refused();
  return (origin.source == Source::kLive || origin.source == Source::kReplicas) &&
         !refused.empty() &&
         std::all_of(refused.begin(), refused.end(), [&](const wire::Ready::Refused& one) {
           return std::find(origin.holders.begin(), origin.holders.end(), one.holder()) !=
                  origin.holders.end();
         });
}

void RefuseHolders(const std::string& worker,
                   const wire::Ready& message,
                   const SourceOption& origin,
                   TransitionContext& context) {
  Refusals& refusals = context.sources.refusals();
  for (const wire::Ready::Refused& one : message.refused()) {
    const RefusedState refused = RefusalOf(origin, one.holder(), worker, context);
    context.out.Log("state_refused", {{"worker", worker},
                                      {"from", one.holder()},
                                      {"source", std::string(NameOf(origin.source))},
                                      {"step", origin.step},
                                      {"generation", refused.generation},
                                      {"what", one.chunk()},
                                      {"expected", fmt::format("{:016x}", one.expected())},
                                      {"found", fmt::format("{:016x}", one.found())},
                                      {"chunks", one.chunks()}});
    context.decisions.Note(
        {.worker = one.holder(),
         .what = fmt::format("its state after step {} came to {} with another hash", origin.step,
                             worker),
         .accusers = {worker}});
    refusals.Add(refused);
  }
}

void RefuseSource(const SourceOption& origin,
                  const std::string& reason,
                  TransitionContext& context) {
  if (origin.source == Source::kReplicas) {
    context.out.Log(
        "replica_refused",
        {{"step", origin.step}, {"generation", origin.snapshot_generation}, {"reason", reason}});
    context.sources.RefuseSnapshot(origin.snapshot_generation, origin.step);
  } else if (origin.source == Source::kCheckpoint) {
    context.out.Log("checkpoint_refused", {{"step", origin.step}, {"reason", reason}});
    context.saves.Refuse(origin.step, reason);
  }
}

std::optional<Disagreement> FindDisagreement(const Moving& moving, const Generations& generations) {
  Certificates said;
  for (const auto& [name, ready] : moving.ready) {
    said[name] = ready.certificate();
  }
  const SourceOption& origin = moving.next.origin;
  const PlanOutcome& next = moving.next.plan;
  Witnesses witnesses;
  // Plans that cut parameters otherwise number their pieces otherwise: nobody is known as a witness.
  if (origin.source == Source::kLive &&
      generations.held()->plan.parameter_count == next.parameter_count) {
    for (const std::string& name : origin.holders) {
      for (const int32_t parameter : ParametersOf(generations.held()->plan, name)) {
        witnesses[parameter].insert(name);
      }
    }
  }
  return FindDisagreement(next, origin.step, said, witnesses);
}

std::vector<Loss> RefuseDisagreeing(const Disagreement& found,
                                    const SourceOption& origin,
                                    int64_t generation,
                                    TransitionContext& context) {
  LogDisagreement(found, origin, generation, context);
  const std::set<std::string> refused = AmissIn(found, origin, context);
  for (const std::string& name : refused) {
    context.sources.refusals().Add(RefusalOf(origin, name, "", context));
  }
  std::vector<Loss> losses;
  for (const std::string& name : found.workers) {
    // If no holder that it may have its state from is wrong, the worker itself is at fault.
    if (found.decided &&
        (refused.empty() || (refused.count(name) > 0 && context.agreement.Suspect(name)))) {
      losses.push_back({.worker = name,
                        .reason = "its state differs from that of most: " + found.what,
                        .rejoins = false});
    }
  }
  if (origin.source == Source::kLive) {
    // A worker that differed may have written what was saved since the last agreed step.
    context.sources.VoidAfter(context.agreement.step());
    context.saves.VoidAfter(context.agreement.step(), context.generations.held()->number,
                            context.out);
  } else if (!found.decided) {
    RefuseSource(origin, found.what, context);
  }
  return losses;
}

std::optional<Loss> FaultOf(const std::string& worker,
                            const SourceOption& origin,
                            TransitionContext& context) {
  Refusals& refusals = context.sources.refusals();
  std::set<std::string> sources = refusals.HoldersRefusedBy(worker);
  if (origin.source == Source::kCheckpoint && !sources.empty()) {
    sources.insert(fmt::format("the checkpoint of step {}", origin.step));
  }
  if (sources.size() < 2) {
    return std::nullopt;
  }
  refusals.Forgive(worker);
  return Loss{.worker = worker,
              .reason = fmt::format("what comes to it from {} has other hashes than were sent",
                                    fmt::join(sources, " and ")),
              .rejoins = false};
}

}  // namespace heddle::elastic
