/// \file
/// Reading a LogEvent's fields.
#pragma once

#include <string>

#include "elastic/control/log_event.h"

namespace heddle::elastic {

/// The field as a number; 0 when it is absent or no number.
double NumberOf(const LogEvent& event, const std::string& field);
/// The field as text; empty when it is absent or no text.
std::string TextOf(const LogEvent& event, const std::string& field);

}  // namespace heddle::elastic
