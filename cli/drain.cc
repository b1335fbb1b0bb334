#include <cstdio>

#include "cli/command.h"
#include "cli/output.h"
#include "elastic/grpc/client.h"

namespace heddle::cli {
namespace {

class Drain : public Command {
 public:
  std::string name() const override { return "drain"; }
  std::string summary() const override {
    return "Let a worker, or all of a host, leave without losing a step";
  }
  std::string examples() const override {
    return "Examples:\n  heddle drain worker-3\n  heddle drain HOST --run runs/a";
  }
  void Declare(Arguments& arguments) override {
    arguments.Positional("NODE", &worker_, "Worker or host");
    arguments.Option("coordinator", &coordinator_, "HOST:PORT");
    arguments.Option("run", &run_, "Folder of the run [the newest under ./runs]");
  }
  int Run() override {
    const auto coordinator = FindCoordinator(coordinator_, run_);
    if (!coordinator.ok()) {
      return Report(coordinator.status());
    }
    const auto drained = elastic::CoordinatorClient(*coordinator).Drain(worker_);
    if (!drained.ok()) {
      return ReportCall(drained.status(), *coordinator);
    }
    for (const std::string& worker : *drained) {
      std::printf("%s\n", worker.c_str());
    }
    return kDone;
  }

 private:
  std::string worker_;
  std::string coordinator_;
  std::string run_;
};

}  // namespace

std::unique_ptr<Command> MakeDrain() {
  return std::make_unique<Drain>();
}

}  // namespace heddle::cli
