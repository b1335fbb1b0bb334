/// \file
/// Makes a failing history smaller while it still fails, and prints its story.
#pragma once

#include <functional>
#include <string>

#include "tests/elastic/simulation/history/history.h"

namespace heddle::elastic {

/// Makes `failing`, a history that fails, smaller for as long as `fails` returns true: removes
/// faults, in halves and one by one, makes them earlier and shorter, makes the cluster and the job
/// smaller, and sets drawn options to plain values. Calls `fails` at most `most_runs` times.
SimOptions Shrink(SimOptions failing,
                  const std::function<bool(const SimOptions&)>& fails,
                  int most_runs = 600);

/// The moments of a history that was run with SimOptions::record, one a line: the time, and the
/// fault with its target or the coordinator's log event.
std::string Story(const SimResult& result);

}  // namespace heddle::elastic
