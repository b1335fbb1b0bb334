/// \file
/// Random small plans, for tests that must hold for every plan.
#pragma once

#include <cstdint>

#include "engine/program/plan.h"

namespace heddle::testing {

/// A valid plan, a function of (seed, segments): one to four pipelines of unlike depth and unlike
/// cuts, one to seven microbatches each in ranges that need not follow the pipelines' order, some
/// stages recomputed or ahead, up to two idle workers, ranks in no order. Always exact: a test of
/// relaxed plans sets `determinism`.
program::Plan RandomPlan(uint64_t seed, int segments);

/// RandomPlan for the graph's segments, relaxed, in which about two stages of three are groups of
/// two to eight workers with RandomLayouts of the graph; some share one.
program::Plan RandomGroupPlan(uint64_t seed, const graph::Graph& graph);

}  // namespace heddle::testing
