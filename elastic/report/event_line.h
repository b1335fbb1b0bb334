/// \file
/// Formats events of a run's log for people.
#pragma once

#include <string>

#include "elastic/report/run_events.h"

namespace heddle::elastic {

/// The time as "2026-01-31T12:00:00.250Z": UTC, to the millisecond. Thread-safe.
std::string FormatEventTime(double seconds_since_epoch);

/// One line without its end: the time, the event's kind, and a sentence. An event of an unknown
/// kind is shown with its fields as they are; control characters are shown as '?'. Thread-safe.
std::string EventLine(const RunEvent& event);

}  // namespace heddle::elastic
