/// \file
/// The subcommands of heddle-engine, which need libtorch (cli/engine_commands.h).
#pragma once

#include <memory>

#include "cli/command.h"

namespace heddle::cli {

std::unique_ptr<Command> MakeWorker();
std::unique_ptr<Command> MakePlan();
std::unique_ptr<Command> MakeEvaluate();
std::unique_ptr<Command> MakeDevices();
std::unique_ptr<Command> MakeOps();

}  // namespace heddle::cli
