/// \file
/// How long a worker that was given up waits before it begins anew.
#pragma once

#include <string>

namespace heddle::elastic {

struct Begun {
  double wait_seconds = 0;
  std::string text;  ///< For the next one: "COUNT SECONDS", of the times in a row and the last one.
};

/// `last`: text of the one before, empty for the first; anything else counts as that. `now`:
/// seconds of a clock that nobody sets and that goes on from one run of the program to the next.
/// Waits 0.5 s, and twice as long each time, up to a minute; a worker that kept its place for ten
/// minutes is as good as new. Pure.
Begun NextBegin(const std::string& last, double now);

}  // namespace heddle::elastic
