/// \file
/// When the values of a stage's template can be read, and when they are read last.
#pragma once

#include "engine/program/lowering/stage_template.h"

namespace heddle::program {

/// Adds a kAwait of what each exchange makes before the first step that reads it, or else at the end
/// of the forward or backward in which it is made. What it contributes is complete behind it.
void AwaitExchanges(StageTemplate& stage);

/// Fills in what each step frees.
void PlaceFrees(StageTemplate& stage);

}  // namespace heddle::program
