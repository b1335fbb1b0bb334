#include <cstdio>

#include <fmt/format.h>

#include "cli/command.h"
#include "cli/coordinator/coordinator_arguments.h"
#include "cli/output.h"
#include "elastic/grpc/client.h"

namespace heddle::cli {
namespace {

// How much of a worker's state has arrived; empty unless state is being moved to it.
std::string Moved(const elastic::wire::JobStatus::Worker& worker) {
  return worker.bytes_to_move() == 0
             ? ""
             : fmt::format("  {:.0f} % of {:.1f} MB of its state",
                           100 * static_cast<double>(worker.moved_bytes()) /
                               static_cast<double>(worker.bytes_to_move()),
                           static_cast<double>(worker.bytes_to_move()) / 1e6);
}

// Formats a value; a dash if it does not exist.
template <typename Value>
std::string Shown(bool exists, const char* format, Value value) {
  return exists ? fmt::format(fmt::runtime(format), value) : "-";
}

void PrintTable(const elastic::wire::JobStatus& status) {
  std::printf(
      "%s%s%s  generation %s  step %s/%s  loss %s  %s tokens/s  step %s s (predicted %s s)\n",
      status.phase().c_str(), status.reason().empty() ? "" : ": ", status.reason().c_str(),
      Shown(status.has_generation(), "{}", status.generation()).c_str(),
      Shown(status.has_step(), "{}", status.step()).c_str(),
      Shown(status.has_total_steps(), "{}", status.total_steps()).c_str(),
      Shown(status.has_loss(), "{:.6g}", status.loss()).c_str(),
      Shown(status.has_tokens_per_second(), "{:.0f}", status.tokens_per_second()).c_str(),
      Shown(status.has_step_seconds(), "{:.3f}", status.step_seconds()).c_str(),
      Shown(status.has_predicted_step_seconds(), "{:.3f}", status.predicted_step_seconds())
          .c_str());
  if (status.has_guarantee()) {
    std::printf("guarantee %s%s%s\n", status.guarantee().c_str(),
                status.guarantee_reason().empty() ? "" : ": ", status.guarantee_reason().c_str());
  }
  std::printf("%-16s %-12s %8s %10s %9s %9s\n", "WORKER", "STANDING", "PID", "STEP", "SLOWDOWN",
              "MEASURED");
  for (const auto& worker : status.workers()) {
    std::printf("%-16s %-12s %8lld %10lld %9s %9s%s\n", worker.name().c_str(),
                worker.standing().c_str(), static_cast<long long>(worker.pid()),
                static_cast<long long>(worker.applied_step()),
                Shown(worker.has_slowdown(), "{:.2f}", worker.slowdown()).c_str(),
                Shown(worker.has_measured_slowdown(), "{:.2f}", worker.measured_slowdown()).c_str(),
                Moved(worker).c_str());
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
    coordinator_.Declare(arguments, kRunOfNewest);
    arguments.Flag("json", &json_, "One JSON object on standard output");
  }
  int Run() override {
    const auto client = coordinator_.Connect();
    if (!client.ok()) {
      return Report(client.status());
    }
    const auto status = (*client)->Status();
    if (!status.ok()) {
      return ReportCall(status.status(), coordinator_.address());
    }
    if (json_) {
      std::printf("%s\n", elastic::StatusToJson(*status).c_str());
    } else {
      PrintTable(*status);
    }
    return kDone;
  }

 private:
  CoordinatorArguments coordinator_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeStatus() {
  return std::make_unique<Status>();
}

}  // namespace heddle::cli
