#include <utility>

#include "cli/engine/engine.h"

int main(int argc, char** argv) {
  heddle::cli::Commands commands;
  commands.push_back(heddle::cli::MakeWorker());
  commands.push_back(heddle::cli::MakePlan());
  commands.push_back(heddle::cli::MakeEvaluate());
  commands.push_back(heddle::cli::MakeDevices());
  commands.push_back(heddle::cli::MakeOps());
  return heddle::cli::Main(argc, argv, std::move(commands));
}
