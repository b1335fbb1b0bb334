/// \file
/// An event of a run's log as a line for people.
#pragma once

#include <string>

#include "elastic/report/run_events.h"

namespace heddle::elastic {

/// "2026-01-31T12:00:00.250Z": UTC, milliseconds. Thread-safe.
std::string FormatEventTime(double seconds_since_epoch);

/// When, which event, and what it says: one line without its end. An event that is not known here
/// is shown with its fields as they are; control characters are shown as '?'. Thread-safe.
std::string EventLine(const RunEvent& event);

}  // namespace heddle::elastic
