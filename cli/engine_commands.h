/// \file
/// The subcommands that compute with libtorch. They are a program of their own, heddle-engine,
/// which lies beside `heddle` and which `heddle` becomes when one of them is named: every other
/// subcommand starts in a tenth of the time and takes a fifth of the memory without that library.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "cli/command.h"

namespace heddle::cli {

/// A subcommand of heddle-engine, as `heddle --help` shows it.
struct EngineCommand {
  std::string_view name;
  std::string_view summary;
};

inline constexpr EngineCommand kWorkerCommand = {
    "worker", "Run one worker of a job until the coordinator releases it"};
inline constexpr EngineCommand kPlanCommand = {
    "plan", "Measure the job's workers on this machine and show the best plan"};
inline constexpr EngineCommand kEvaluateCommand = {
    "evaluate", "Measure a model's loss on a file of text or tokens"};

/// Where heddle-engine is: in the folder of the running program. Errors: kNotFound.
Result<std::string> EnginePath();

/// The subcommand of `heddle` that becomes heddle-engine with the same `argv`.
std::unique_ptr<Command> MakeForwarded(const EngineCommand& command, char** argv);

}  // namespace heddle::cli
