#include <cstdio>

#include "cli/command.h"
#include "cli/output.h"
#include "elastic/grpc/client.h"

namespace heddle::cli {
namespace {

void PrintTable(const elastic::wire::JobStatus& status) {
  std::printf(
      "%s%s%s  generation %lld  step %lld/%lld  loss %.6g  %.0f tokens/s  step %.3f s (predicted "
      "%.3f s)\n",
      status.phase().c_str(), status.reason().empty() ? "" : ": ", status.reason().c_str(),
      static_cast<long long>(status.generation()), static_cast<long long>(status.step()),
      static_cast<long long>(status.total_steps()), status.loss(), status.tokens_per_second(),
      status.step_seconds(), status.predicted_step_seconds());
  std::printf("%-16s %-12s %8s %10s %9s\n", "WORKER", "STANDING", "PID", "STEP", "SLOWDOWN");
  for (const auto& worker : status.workers()) {
    std::printf("%-16s %-12s %8lld %10lld %9.2f\n", worker.name().c_str(),
                worker.standing().c_str(), static_cast<long long>(worker.pid()),
                static_cast<long long>(worker.applied_step()), worker.slowdown());
  }
}

class Status : public Command {
 public:
  std::string name() const override { return "status"; }
  std::string summary() const override { return "Show a job: phase, step, loss, workers, plan"; }
  std::string examples() const override {
    return "Examples:\n  heddle status\n  heddle status --run runs/quickstart --json";
  }
  void Declare(Arguments& arguments) override {
    arguments.Option("coordinator", &coordinator_, "HOST:PORT");
    arguments.Option("run", &run_, "Folder of the run [the newest under ./runs]");
    arguments.Flag("json", &json_, "One JSON object on standard output");
  }
  int Run() override {
    const auto coordinator = FindCoordinator(coordinator_, run_);
    if (!coordinator.ok()) {
      return Report(coordinator.status());
    }
    const auto status = elastic::CoordinatorClient(*coordinator).Status();
    if (!status.ok()) {
      return ReportCall(status.status(), *coordinator);
    }
    if (json_) {
      std::printf("%s\n", elastic::StatusToJson(*status).c_str());
    } else {
      PrintTable(*status);
    }
    return kDone;
  }

 private:
  std::string coordinator_;
  std::string run_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeStatus() {
  return std::make_unique<Status>();
}

}  // namespace heddle::cli
