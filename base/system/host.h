/// \file
/// Which machine this is.
#pragma once

#include <string>

namespace heddle {

/// Equal for processes of one booted kernel, different otherwise: not a name, which clones share.
std::string HostIdentity();

}  // namespace heddle
