/// \file
/// Checks the state that was moved before a generation continues from it, and refuses sources and
/// copies that were found to be wrong.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "elastic/control/transition/transitions.h"

namespace heddle::elastic {

/// True if the reply refuses copies of the state, and all are of holders in `origin`.
bool RefusesHolders(const wire::Ready& message, const SourceOption& origin);
/// Records and logs the copies that the reply refuses: they are not offered again.
void RefuseHolders(const std::string& worker,
                   const wire::Ready& message,
                   const SourceOption& origin,
                   TransitionContext& context);
/// Logs and excludes a snapshot or checkpoint that cannot be read or trusted: it is not offered
/// again.
void RefuseSource(const SourceOption& origin,
                  const std::string& reason,
                  TransitionContext& context);
/// Compares the certificates of the plan's members after the move; nullopt if the state is correct.
/// `generations`: whose newest had the state before, if it came from live workers.
std::optional<Disagreement> FindDisagreement(const Moving& moving, const Generations& generations);
/// Records and logs members that disagree about the state after origin.step: their copies of it are
/// not offered again, and neither is what was saved since the last agreed step. `origin`: where
/// they have the state from, or the tensors that they train on. Returns the workers to be given up:
/// each differs from a majority, and either has had a new copy of the state since it differed
/// before, or has its state from holders that are not wrong.
std::vector<Loss> RefuseDisagreeing(const Disagreement& found,
                                    const SourceOption& origin,
                                    int64_t generation,
                                    TransitionContext& context);
/// The loss of a worker that has just refused `origin`, if it has now refused the state of two
/// sources in one recovery: the worker itself is at fault then, and its refusals are withdrawn.
/// nullopt otherwise.
std::optional<Loss> FaultOf(const std::string& worker,
                            const SourceOption& origin,
                            TransitionContext& context);

}  // namespace heddle::elastic
