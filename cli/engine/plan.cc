#include <cstdio>

#include "cli/engine/engine.h"
#include "cli/engine_commands.h"
#include "cli/output.h"
#include "elastic/report/event_line.h"
#include "elastic/worker/local_plan.h"

namespace heddle::cli {
namespace {

class Plan : public Command {
 public:
  std::string name() const override { return std::string(kPlanCommand.name); }
  std::string summary() const override { return std::string(kPlanCommand.summary); }
  std::string examples() const override {
    return "Examples:\n  heddle plan configs/quickstart.yaml --explain\n  heddle plan job.yaml "
           "--json > plan.json\n  heddle plan job.yaml --uniform --json > grid.json\n"
           "  heddle plan job.yaml --save-profile measured.json\n"
           "  heddle plan job.yaml --profile runs/mine/profile.json --explain\n"
           "  heddle plan job.yaml --profile measured.json --set workers.0.emulate.memory=3MB";
  }
  void Declare(Arguments& arguments) override {
    arguments.Positional("JOB", &path_, "Job file (YAML)");
    arguments.OptionList("set", &overrides_, "Override a key: key.path=value; may be repeated");
    arguments.Option("profile", &profile_,
                     "Measure nothing: plan with the figures of this file, which --save-profile "
                     "or a run (profile.json) wrote; the plan is the same every time");
    arguments.Option("save-profile", &save_profile_, "Write what was measured to this file");
    arguments.Flag("json", &json_, "The plan with its predictions as JSON on standard output");
    arguments.Flag("explain", &explain_,
                   "Why this plan: prediction, memory, upper bound, what lost");
    arguments.Flag("uniform", &uniform_,
                   "The best grid of equal pipelines and stages instead: what a planner gives that "
                   "takes all workers for alike");
  }
  int Run() override {
    const auto planned = elastic::PlanLocally(
        {.job_path = path_,
         .overrides = overrides_,
         .choice = uniform_ ? elastic::PlanChoice::kUniform : elastic::PlanChoice::kBest,
         .profile_path = profile_,
         .save_profile_path = save_profile_});
    if (!planned.ok()) {
      return Report(planned.status());
    }
    std::printf("%s\n", json_      ? planned->json.c_str()
                        : explain_ ? planned->explanation.c_str()
                                   : planned->text.c_str());
    if (!json_) {
      PrintInputs(planned->inputs);
    }
    return kDone;
  }

 private:
  void PrintInputs(const elastic::PlanInputs& inputs) const {
    std::printf(
        "inputs: profiles of %s, the oldest; own links of %s, ± %.0f %% in latency and "
        "± %.0f %% in rate at most",
        elastic::FormatEventTime(inputs.profiles_measured_at).c_str(),
        elastic::FormatEventTime(inputs.links_measured_at).c_str(), 100 * inputs.latency_spread,
        100 * inputs.rate_spread);
    if (inputs.pairs > 0) {
      std::printf("; and of %d %s of hosts", inputs.pairs, inputs.pairs == 1 ? "pair" : "pairs");
    }
    std::printf("\n");
  }

  std::string path_;
  std::vector<std::string> overrides_;
  std::string profile_;
  std::string save_profile_;
  bool json_ = false;
  bool explain_ = false;
  bool uniform_ = false;
};

}  // namespace

std::unique_ptr<Command> MakePlan() {
  return std::make_unique<Plan>();
}

}  // namespace heddle::cli
