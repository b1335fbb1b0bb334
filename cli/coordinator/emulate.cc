#include "base/utf8.h"
#include "cli/command.h"
#include "cli/coordinator/coordinator_arguments.h"
#include "cli/emulation_words.h"
#include "cli/output.h"
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
    coordinator_.Declare(arguments, kRunOfNewest);
  }
  int Run() override {
    if (const heddle::Status named = CheckUtf8("WORKER", worker_); !named.ok()) {
      return Report(named);
    }
    const auto words = ParseEmulation(words_);
    if (!words.ok()) {
      return Report(words.status());
    }
    const auto client = coordinator_.Connect();
    if (!client.ok()) {
      return Report(client.status());
    }
    const heddle::Status changed =
        (*client)->Emulate(worker_, {.set_speed = words->speed,
                                     .set_memory = words->memory,
                                     .set_link = words->link,
                                     .emulation = elastic::WireEmulation(words->emulation)});
    return ReportCall(changed, coordinator_.address());
  }

 private:
  std::string worker_;
  std::vector<std::string> words_;
  CoordinatorArguments coordinator_;
};

}  // namespace

std::unique_ptr<Command> MakeEmulate() {
  return std::make_unique<Emulate>();
}

}  // namespace heddle::cli
