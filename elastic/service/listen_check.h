/// \file
/// Whether an address can be listened on: asked before a run leaves anything on storage.
#pragma once

#include <string>

#include "base/status.h"

namespace heddle::elastic {

/// `address` is HOST:PORT with a numeric host; port 0 is any free one. `what` names it in the
/// message. Errors: kInvalidArgument (no such address here, the port is taken, not HOST:PORT).
Status CheckCanListen(const std::string& what, const std::string& address);

/// Whether anybody may be let in at `address`: loopback, or `guarded` (by certificates, or by a
/// network of which the user has said so). `remedy`: what the user can do else. Errors:
/// kInvalidArgument with one line.
Status CheckIsGuarded(const std::string& what,
                      const std::string& address,
                      bool guarded,
                      const std::string& remedy);

}  // namespace heddle::elastic
