#include <cstdio>

#include "cli/command.h"
#include "cli/output.h"
#include "elastic/service/inspect/limits_in_force.h"

namespace heddle::cli {
namespace {

class Config : public Command {
 public:
  std::string name() const override { return "config"; }
  std::string summary() const override {
    return "Show every limit that a job's control plane has, and what it follows from";
  }
  std::string examples() const override {
    return "Examples:\n  heddle config job.yaml\n  heddle config job.yaml --set elastic.lease=10s\n"
           "  heddle config runs/quickstart/job.yaml --json";
  }
  void Declare(Arguments& arguments) override {
    arguments.Positional("JOB", &job_, "Job file (YAML); a run's is in its folder");
    arguments.OptionList("set", &overrides_, "Override a key: key.path=value; may be repeated");
    arguments.Flag("json", &json_, "One JSON list on standard output");
  }
  int Run() override {
    const auto job = job::LoadJob(job_, overrides_);
    if (!job.ok()) {
      return Report(job.status());
    }
    const std::vector<elastic::Limit> limits = elastic::LimitsInForce(*job);
    std::printf("%s%s",
                (json_ ? elastic::LimitsJson(limits) : elastic::LimitsTable(limits)).c_str(),
                json_ ? "\n" : "");
    return kDone;
  }

 private:
  std::string job_;
  std::vector<std::string> overrides_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeConfig() {
  return std::make_unique<Config>();
}

}  // namespace heddle::cli
