#include <cstdio>

#include "checkpoint/inspect.h"
#include "checkpoint/reader.h"
#include "checkpoint/verify.h"
#include "cli/command.h"
#include "cli/output.h"

namespace heddle::cli {
namespace {

class Inspect : public Command {
 public:
  std::string name() const override { return "inspect"; }
  std::string summary() const override { return "Show what a checkpoint holds"; }
  std::string examples() const override {
    return "Examples:\n  heddle checkpoint inspect runs/quickstart/checkpoints/step-00000100 "
           "--json";
  }
  void Declare(Arguments& arguments) override {
    arguments.Positional("PATH", &path_, "Folder of the checkpoint");
    arguments.Flag("json", &json_, "One JSON object on standard output");
  }
  int Run() override {
    const auto reader = checkpoint::Reader::Open(path_);
    if (!reader.ok()) {
      return Report(reader.status());
    }
    const std::string text = json_ ? checkpoint::InspectJson((*reader)->manifest()) + "\n"
                                   : checkpoint::InspectText((*reader)->manifest());
    std::fputs(text.c_str(), stdout);
    return kDone;
  }

 private:
  std::string path_;
  bool json_ = false;
};

class Verify : public Command {
 public:
  std::string name() const override { return "verify"; }
  std::string summary() const override {
    return "Check every byte of a checkpoint: 0 sound, 1 damaged, 2 none";
  }
  std::string examples() const override {
    return "Examples:\n  heddle checkpoint verify runs/quickstart/checkpoints/step-00000100";
  }
  void Declare(Arguments& arguments) override {
    arguments.Positional("PATH", &path_, "Folder of the checkpoint");
  }
  int Run() override {
    const auto damages = checkpoint::Verify(path_);
    if (!damages.ok()) {
      Report(damages.status());
      return kBadUsage;
    }
    for (const checkpoint::Damage& damage : *damages) {
      std::printf("%s\n", checkpoint::ToString(damage).c_str());
    }
    if (damages->empty()) {
      std::printf("sound: %s\n", path_.c_str());
    }
    return damages->empty() ? kDone : kFailed;
  }

 private:
  std::string path_;
};

class Checkpoint : public Command {
 public:
  std::string name() const override { return "checkpoint"; }
  std::string summary() const override { return "Inspect and verify checkpoints"; }
  std::string examples() const override { return ""; }
  void Declare(Arguments& /*arguments*/) override {}
  int Run() override { return kBadUsage; }
  std::vector<std::unique_ptr<Command>> Children() override {
    std::vector<std::unique_ptr<Command>> children;
    children.push_back(std::make_unique<Inspect>());
    children.push_back(std::make_unique<Verify>());
    return children;
  }
};

}  // namespace

std::unique_ptr<Command> MakeCheckpoint() {
  return std::make_unique<Checkpoint>();
}

}  // namespace heddle::cli
