/// \file
/// What is proved of a state that was moved before anybody goes on from it, and what becomes of a
/// source that was found to be amiss.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "elastic/control/transition/transitions.h"

namespace heddle::elastic {

/// Whether the answer names copies of the state that the move was to take.
bool RefusesHolders(const wire::Ready& message, const SourceOption& origin);
/// Takes note of them, and says so: they are not offered again.
void RefuseHolders(const std::string& worker,
                   const wire::Ready& message,
                   const SourceOption& origin,
                   Scene& scene);
/// The source cannot be read, or what was read from it cannot be trusted: it is not offered again.
void RefuseSource(const SourceOption& origin, const std::string& reason, Scene& scene);
/// What the plan's members have of the state that was moved; none: it is as it should be.
std::optional<Disagreement> FindDisagreement(const Moving& moving);
/// Takes note of members that are at odds, and says so: the state after `step` is not gone on from
/// where they hold it, nor is what was kept of it since all agreed. `origin`: where they have it
/// from, or the tensors that they train on. Who is to be given up: it had its state anew before, or
/// has it from those that agree.
std::vector<Loss> RefuseDisagreeing(const Disagreement& found,
                                    const SourceOption& origin,
                                    int64_t generation,
                                    Scene& scene);
/// Whether a worker that has just found `origin` amiss is at fault itself, because it has found all
/// others so, too: what it has refused is void then, and it is to be given up.
std::optional<Loss> FaultOf(const std::string& worker, const SourceOption& origin, Scene& scene);

}  // namespace heddle::elastic
