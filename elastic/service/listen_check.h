/// \file
/// Checks of the addresses that a run listens at, made before it leaves anything on storage.
#pragma once

#include <string>

#include "base/status.h"

namespace heddle::elastic {

/// OK if this process can listen on `address`, HOST:PORT with a numeric host; port 0 is any free
/// one. `what` names it in the message. Errors: kInvalidArgument (no such address here, the port is
/// taken, not HOST:PORT).
Status CheckCanListen(const std::string& what, const std::string& address);

/// OK if the address is loopback, or `guarded` by certificates or by a network that the user trusts
/// (--insecure). `what` and `remedy`, what the user can do instead, are parts of the message.
/// Errors: kInvalidArgument with one line.
Status CheckIsGuarded(const std::string& what,
                      const std::string& address,
                      bool guarded,
                      const std::string& remedy);

}  // namespace heddle::elastic
