/// \file
/// All fields of an action of the coordinator, as text: histories are compared by it.
#pragma once

#include <string>

#include "elastic/control/actions.h"

namespace heddle::elastic {

std::string TextOf(const CoordinatorAction& action);

}  // namespace heddle::elastic
