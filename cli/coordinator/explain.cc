#include <cstdio>

#include "cli/command.h"
#include "cli/coordinator/event_arguments.h"
#include "cli/option_number.h"
#include "cli/output.h"
#include "elastic/report/explanation.h"

namespace heddle::cli {
namespace {

class Explain : public Command {
 public:
  std::string name() const override { return "explain"; }
  std::string summary() const override {
    return "Explain why a generation began: what happened, what could be done, what was chosen";
  }
  std::string examples() const override {
    return "Examples:\n  heddle explain\n  heddle explain 3 --run runs/quickstart\n"
           "  heddle explain 3 --coordinator 10.0.0.1:4600 --json";
  }
  void Declare(Arguments& arguments) override {
    arguments.Positional("GENERATION", &generation_, "Its number [the newest]", false);
    where_.Declare(arguments);
    arguments.Flag("json", &json_, "Its decision as events.jsonl has it");
  }
  int Run() override {
    int64_t generation = 0;
    if (!generation_.empty()) {
      const auto parsed = ParseNumber("GENERATION", generation_, 1, INT64_MAX);
      if (!parsed.ok()) {
        return Report(parsed.status());
      }
      generation = *parsed;
    }
    auto source = where_.Open();
    if (!source.ok()) {
      return where_.ReportError(source.status());
    }
    elastic::Explanations explanations;
    const heddle::Status read = source->ReadAll([&](const elastic::RunEvent& event) {
      explanations.Note(event);
      return true;
    });
    if (const int code = where_.End(*source, read); code != kDone) {
      return code;
    }
    generation = generation == 0 ? explanations.newest().value_or(0) : generation;
    const auto text = json_ ? explanations.EntryOf(generation) : explanations.Explain(generation);
    if (!text.ok()) {
      return Report(text.status());
    }
    std::printf("%s%s", text->c_str(), json_ ? "\n" : "");
    return kDone;
  }

 private:
  std::string generation_;
  EventArguments where_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeExplain() {
  return std::make_unique<Explain>();
}

}  // namespace heddle::cli
