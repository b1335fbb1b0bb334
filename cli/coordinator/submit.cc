#include <cstdio>

#include "base/log.h"
#include "base/system/file.h"
#include "cli/command.h"
#include "cli/coordinator/coordinator_arguments.h"
#include "cli/output.h"
#include "engine/job/effects.h"
#include "engine/job/job.h"

namespace heddle::cli {
namespace {

class Submit : public Command {
 public:
  std::string name() const override { return "submit"; }
  std::string summary() const override { return "Give a job to a persistent coordinator"; }
  std::string examples() const override {
    return "Examples:\n  heddle submit job.yaml --coordinator 10.0.0.1:4600 --out /shared/runs/a";
  }
  void Declare(Arguments& arguments) override {
    arguments.Positional("JOB", &path_, "Job file (YAML)");
    coordinator_.Declare(arguments, "Folder of the coordinator's store");
    arguments.Option("out", &output_, "Folder of the run, seen alike by coordinator and workers");
    arguments.OptionList("set", &overrides_, "Override a key: key.path=value; may be repeated");
  }
  int Run() override {
    if (!output_.empty()) {
      const auto absolute = AbsolutePath(output_);
      if (!absolute.ok()) {
        return Report(absolute.status());
      }
      overrides_.push_back("output=" + *absolute);
    }
    const auto job = job::LoadJob(path_, overrides_);
    if (!job.ok()) {
      return Report(job.status());
    }
    const auto client = coordinator_.Connect();
    if (!client.ok()) {
      return Report(client.status());
    }
    const auto id = (*client)->Submit(job->text, path_);
    if (!id.ok()) {
      return ReportCall(id.status(), coordinator_.address());
    }
    for (const std::string& warning : job::SubmitWarnings(*job)) {
      LogWarning("{}", warning);
    }
    std::printf("%s\n", id->c_str());
    return kDone;
  }

 private:
  std::string path_;
  CoordinatorArguments coordinator_;
  std::string output_;
  std::vector<std::string> overrides_;
};

}  // namespace

std::unique_ptr<Command> MakeSubmit() {
  return std::make_unique<Submit>();
}

}  // namespace heddle::cli
