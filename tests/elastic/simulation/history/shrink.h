/// \file
/// From a history that fails to a small one that does, and its story.
#pragma once

#include <functional>
#include <string>

#include "tests/elastic/simulation/history/history.h"

namespace heddle::elastic {

/// Takes faults away, in halves and one by one, makes them earlier and shorter, the cluster and the
/// job smaller, and all that was drawn plain, for as long as `fails` says so; at most so many
/// times. `failing` fails.
SimOptions Shrink(SimOptions failing,
                  const std::function<bool(const SimOptions&)>& fails,
                  int most_runs = 600);

/// What happened in a history that was run with SimOptions::record, a line each: the time, and the
/// fault with its target or what the coordinator noted.
std::string Story(const SimResult& result);

}  // namespace heddle::elastic
