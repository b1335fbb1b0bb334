#include "cli/checkpoint/checkpoint.h"

namespace heddle::cli {
namespace {

class Checkpoint : public Command {
 public:
  std::string name() const override { return "checkpoint"; }
  std::string summary() const override {
    return "List, inspect, verify, compare, convert, reshard and prune checkpoints";
  }
  std::string examples() const override { return ""; }
  void Declare(Arguments& /*arguments*/) override {}
  int Run() override { return kBadUsage; }
  std::vector<std::unique_ptr<Command>> Children() override {
    std::vector<std::unique_ptr<Command>> children;
    children.push_back(MakeCheckpointLs());
    children.push_back(MakeCheckpointInspect());
    children.push_back(MakeCheckpointVerify());
    children.push_back(MakeCheckpointDiff());
    children.push_back(MakeCheckpointConvert());
    children.push_back(MakeCheckpointReshard());
    children.push_back(MakeCheckpointPrune());
    return children;
  }
};

}  // namespace

std::unique_ptr<Command> MakeCheckpoint() {
  return std::make_unique<Checkpoint>();
}

}  // namespace heddle::cli
