/// \file
/// The identity of this machine.
#pragma once

#include <string>

namespace heddle {

/// A text that is equal for processes of one booted kernel and different otherwise. It is not the
/// host name, which clones share.
std::string HostIdentity();

}  // namespace heddle
