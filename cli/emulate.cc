#include "cli/command.h"
#include "cli/emulation_words.h"
#include "cli/output.h"
#include "elastic/grpc/client.h"
#include "elastic/service/job_policy.h"

namespace heddle::cli {
namespace {

class Emulate : public Command {
 public:
  std::string name() const override { return "emulate"; }
  std::string summary() const override {
    return "Change a running worker's emulated speed, memory or link";
  }
  std::string examples() const override {
    return "Examples:\n  heddle emulate a speed=0.3\n  heddle emulate a link=100Mbit --run "
           "runs/quickstart";
  }
  void Declare(Arguments& arguments) override {
    arguments.Positional("WORKER", &worker_, "Name of the worker");
    arguments.PositionalList("CHANGE", &words_, "speed=…, memory=…, link=…");
    arguments.Option("coordinator", &coordinator_, "HOST:PORT");
    arguments.Option("run", &run_, "Folder of the run [the newest under ./runs]");
  }
  int Run() override {
    const auto words = ParseEmulation(words_);
    if (!words.ok()) {
      return Report(words.status());
    }
    const auto coordinator = FindCoordinator(coordinator_, run_);
    if (!coordinator.ok()) {
      return Report(coordinator.status());
    }
    const heddle::Status changed =
        elastic::CoordinatorClient(*coordinator)
            .Emulate(worker_, {.set_speed = words->speed,
                               .set_memory = words->memory,
                               .set_link = words->link,
                               .emulation = elastic::WireEmulation(words->emulation)});
    return ReportCall(changed, *coordinator);
  }

 private:
  std::string worker_;
  std::vector<std::string> words_;
  std::string coordinator_;
  std::string run_;
};

}  // namespace

std::unique_ptr<Command> MakeEmulate() {
  return std::make_unique<Emulate>();
}

}  // namespace heddle::cli
