/// \file
/// The wait of a worker that the coordinator has given up, before it begins anew.
#pragma once

#include <string>

namespace heddle::elastic {

/// A wait before a worker begins anew, and what the next NextRestartWait is to know of it.
struct RestartWait {
  double seconds = 0;
  std::string text;  ///< "COUNT SECONDS": begins in a row, and the time of this one.
};

/// Returns the wait before the next begin: 0.5 s, doubled for each begin before it in a row, up to
/// a minute. A begin of more than ten minutes ago does not count. `last`: the text of the last
/// RestartWait; empty or malformed: there was none. `now`: seconds of a monotonic clock that goes on from
/// one run of the program to the next. Pure.
RestartWait NextRestartWait(const std::string& last, double now);

}  // namespace heddle::elastic
