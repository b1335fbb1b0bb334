#include <utility>

#include "cli/engine/engine.h"

int main(int argc, char** argv) {
  heddle::cli::Commands commands;
  commands.push_back(heddle::cli::MakeWorker());
  commands.push_back(heddle::cli::MakePlan());
  commands.push_back(heddle::cli::MakeEvaluate());
  return heddle::cli::Main(argc, argv, std::move(commands));
}
