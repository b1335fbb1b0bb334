/// \file
/// The subcommands that compute with libtorch. They are in a program of their own, heddle-engine,
/// which is installed beside `heddle` and which `heddle` executes when one of them is named.
/// Without libtorch all other subcommands start in a tenth of the time and take a fifth of the
/// memory.
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
inline constexpr EngineCommand kDevicesCommand = {
    "devices", "Show what this machine has to compute on, and what of it is used"};
inline constexpr EngineCommand kOpsCommand = {
    "ops", "Compare the arithmetic of two kinds of worker, operator by operator"};

/// The path of heddle-engine, in the folder of the running program. Errors: kNotFound.
Result<std::string> EnginePath();

/// Makes the subcommand of `heddle` that executes heddle-engine with the same `argv`.
std::unique_ptr<Command> MakeForwarded(const EngineCommand& command, char** argv);

}  // namespace heddle::cli
