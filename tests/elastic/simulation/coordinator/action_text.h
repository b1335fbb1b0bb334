/// \file
/// All that an action of the coordinator says, as text: histories are compared by it.
#pragma once

#include <string>

#include "elastic/control/actions.h"

namespace heddle::elastic {

std::string TextOf(const CoordinatorAction& action);

}  // namespace heddle::elastic
