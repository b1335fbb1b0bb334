/// \file
/// Typed access to the fields of a LogEvent.
#pragma once

#include <string>

#include "elastic/control/log_event.h"

namespace heddle::elastic {

/// The field as a number; 0 if it is absent or not a number.
double NumberOf(const LogEvent& event, const std::string& field);
/// The field as text; empty if it is absent or not text.
std::string TextOf(const LogEvent& event, const std::string& field);

}  // namespace heddle::elastic
