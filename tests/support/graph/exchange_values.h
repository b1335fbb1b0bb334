/// \file
/// What an exchange makes, and what a tensor has in a box, element by element.
#pragma once

#include <functional>
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

/// Calls visit(element of the part, element of the whole) for the part of `shape` that is `box`.
void ForEachIn(const Box& box,
               const Shape& shape,
               const std::function<void(int64_t, int64_t)>& visit);

/// The part of a tensor that is `box`.
DenseTensor TakeBox(const DenseTensor& whole, const Box& box);

/// Puts a part where it belongs. Returns whether elements that `has` names already have these bits.
bool PutBox(const DenseTensor& part, const Box& box, DenseTensor& whole, std::vector<bool>& has);

}  // namespace heddle::testing
