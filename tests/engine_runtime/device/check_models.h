/// \file
/// Models of the check of a device.
#pragma once

#include <cstdint>

#include "engine/graph/models/model.h"
#include "engine/program/plan.h"
#include "tests/engine_runtime/training.h"

namespace heddle::runtime::testing {

/// The training graph of a model. Fails the test where it has none.
graph::Graph Built(const graph::ModelConfig& config,
                   DType compute,
                   int64_t microbatch_size,
                   int64_t length,
                   int microbatches = kMicrobatches);

/// A model of 134 M parameters, as people train it; on the processor a small one of its shape.
graph::Graph LargeModel(DType compute, int microbatches = kMicrobatches);
/// Its layers, and its segments: embedding, two for each layer, head.
int LargeLayers();
int LargeSegments();
/// The tokens of one of its microbatches.
int64_t LargeTokens();

}  // namespace heddle::runtime::testing
