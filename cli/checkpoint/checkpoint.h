/// \file
/// The subcommands of `heddle checkpoint`; each is in a file of its own.
#pragma once

#include <memory>

#include "cli/command.h"

namespace heddle::cli {

std::unique_ptr<Command> MakeCheckpointLs();
std::unique_ptr<Command> MakeCheckpointInspect();
std::unique_ptr<Command> MakeCheckpointVerify();
std::unique_ptr<Command> MakeCheckpointDiff();
std::unique_ptr<Command> MakeCheckpointConvert();
std::unique_ptr<Command> MakeCheckpointReshard();
std::unique_ptr<Command> MakeCheckpointPrune();

}  // namespace heddle::cli
