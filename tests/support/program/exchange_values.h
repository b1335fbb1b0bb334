/// \file
/// What an exchange makes, element by element.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/graph/sharding/sharded_graph.h"
#include "tests/support/graph/dense_evaluator.h"

namespace heddle::testing {

/// What the member at `receiver` gets of an exchange, in `shape`. `sent`: what each member has of
/// its source. `why` says what is wrong, if anything is: an element that nobody has, or a value of
/// which several members have unlike copies.
DenseTensor MakeExchange(const graph::Exchange& exchange,
                         const std::vector<std::optional<DenseTensor>>& sent,
                         size_t receiver,
                         const Shape& shape,
                         std::string& why);

/// The part of a tensor that is `box`.
DenseTensor TakeBox(const DenseTensor& whole, const Box& box);

/// Puts a part where it belongs. Returns whether elements that `has` names already have these bits.
bool PutBox(const DenseTensor& part, const Box& box, DenseTensor& whole, std::vector<bool>& has);

}  // namespace heddle::testing
