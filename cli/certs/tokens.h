/// \file
/// The subcommands of `heddle certs` that call a coordinator.
#pragma once

#include <memory>

#include "cli/command.h"

namespace heddle::cli {

std::unique_ptr<Command> MakeCertsToken();
std::unique_ptr<Command> MakeCertsRevoke();

}  // namespace heddle::cli
