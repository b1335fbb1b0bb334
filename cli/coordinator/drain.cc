#include <cstdio>

#include "base/utf8.h"
#include "cli/command.h"
#include "cli/coordinator/coordinator_arguments.h"
#include "cli/output.h"

namespace heddle::cli {
namespace {

class Drain : public Command {
 public:
  std::string name() const override { return "drain"; }
  std::string summary() const override {
    return "Let a worker, or all of a host, leave without losing a step, or stay after all";
  }
  std::string examples() const override {
    return "Examples:\n  heddle drain worker-3\n  heddle drain HOST --run runs/a\n"
           "  heddle drain worker-3 --cancel";
  }
  void Declare(Arguments& arguments) override {
    arguments.Positional("NODE", &worker_, "Worker or host");
    arguments.Flag("cancel", &cancel_, "Who was asked to leave, or told its end, stays");
    coordinator_.Declare(arguments, kRunOfNewest);
  }
  int Run() override {
    if (const heddle::Status named = CheckUtf8("NODE", worker_); !named.ok()) {
      return Report(named);
    }
    const auto client = coordinator_.Connect();
    if (!client.ok()) {
      return Report(client.status());
    }
    const auto drained = cancel_ ? (*client)->CancelDrain(worker_) : (*client)->Drain(worker_);
    if (!drained.ok()) {
      return ReportCall(drained.status(), coordinator_.address());
    }
    for (const std::string& worker : *drained) {
      std::printf("%s\n", worker.c_str());
    }
    return kDone;
  }

 private:
  std::string worker_;
  bool cancel_ = false;
  CoordinatorArguments coordinator_;
};

}  // namespace

std::unique_ptr<Command> MakeDrain() {
  return std::make_unique<Drain>();
}

}  // namespace heddle::cli
