#include <cstdio>

#include "base/clock.h"
#include "cli/command.h"
#include "cli/coordinator/event_arguments.h"
#include "cli/output.h"
#include "elastic/report/event_line.h"

namespace heddle::cli {
namespace {

class Events : public Command {
 public:
  std::string name() const override { return "events"; }
  std::string summary() const override {
    return "Show what has happened to a job: losses, plans, checkpoints, decisions";
  }
  std::string examples() const override {
    return "Examples:\n  heddle events\n  heddle events --run runs/quickstart --since 10m "
           "--follow\n"
           "  heddle events --coordinator 10.0.0.1:4600 --steps --json";
  }
  void Declare(Arguments& arguments) override {
    where_.Declare(arguments);
    arguments.Option("since", &since_,
                     "Only what is newer: a duration (10m), or seconds since the epoch");
    arguments.Flag("steps", &steps_, "Also every step");
    arguments.Flag("follow", &follow_, "Go on until the job has ended");
    arguments.Flag("json", &json_, "The lines of events.jsonl as they are");
  }
  int Run() override {
    double since = 0;
    if (!since_.empty()) {
      const auto parsed = elastic::ParseSince(since_, WallClockSeconds());
      if (!parsed.ok()) {
        return Report(parsed.status());
      }
      since = *parsed;
    }
    auto source = where_.Open();
    if (!source.ok()) {
      return where_.ReportError(source.status());
    }
    const auto show = [&](const elastic::RunEvent& event) {
      if (event.time >= since && (steps_ || event.event.kind != "step")) {
        std::printf("%s\n", json_ ? event.line.c_str() : elastic::EventLine(event).c_str());
        return std::fflush(stdout) == 0;
      }
      return true;
    };
    return where_.End(*source, follow_ ? source->Follow(show) : source->ReadAll(show));
  }

 private:
  EventArguments where_;
  std::string since_;
  bool steps_ = false;
  bool follow_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeEvents() {
  return std::make_unique<Events>();
}

}  // namespace heddle::cli
