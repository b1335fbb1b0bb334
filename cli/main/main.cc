#include <utility>

#include "cli/command.h"
#include "cli/engine_commands.h"

int main(int argc, char** argv) {
  heddle::cli::Commands commands;
  commands.push_back(heddle::cli::MakeTrain());
  commands.push_back(heddle::cli::MakeServe());
  commands.push_back(heddle::cli::MakeSubmit());
  commands.push_back(heddle::cli::MakeForwarded(heddle::cli::kWorkerCommand, argv));
  commands.push_back(heddle::cli::MakeStatus());
  commands.push_back(heddle::cli::MakeConfig());
  commands.push_back(heddle::cli::MakeEvents());
  commands.push_back(heddle::cli::MakeExplain());
  commands.push_back(heddle::cli::MakeDrain());
  commands.push_back(heddle::cli::MakeEmulate());
  commands.push_back(heddle::cli::MakeCerts());
  commands.push_back(heddle::cli::MakeForwarded(heddle::cli::kPlanCommand, argv));
  commands.push_back(heddle::cli::MakeForwarded(heddle::cli::kDevicesCommand, argv));
  commands.push_back(heddle::cli::MakeLinks());
  commands.push_back(heddle::cli::MakeCheckpoint());
  commands.push_back(heddle::cli::MakeData());
  commands.push_back(heddle::cli::MakeForwarded(heddle::cli::kEvaluateCommand, argv));
  commands.push_back(heddle::cli::MakeForwarded(heddle::cli::kOpsCommand, argv));
  return heddle::cli::Main(argc, argv, std::move(commands));
}
