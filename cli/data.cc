#include <cstdio>

#include "cli/command.h"
#include "cli/output.h"
#include "engine/data/dataset.h"
#include "engine/job/job.h"

namespace heddle::cli {
namespace {

class Data : public Command {
 public:
  std::string name() const override { return "data"; }
  std::string summary() const override {
    return "Show what a job's data is: files, tokens, samples";
  }
  std::string examples() const override {
    return "Examples:\n  heddle data configs/quickstart.yaml";
  }
  void Declare(Arguments& arguments) override {
    arguments.Positional("JOB", &path_, "Job file (YAML)");
    arguments.OptionList("set", &overrides_, "Override a key: key.path=value; may be repeated");
  }
  int Run() override {
    const auto job = job::LoadJob(path_, overrides_);
    if (!job.ok()) {
      return Report(job.status());
    }
    const auto dataset = data::Dataset::Open(job::DatasetOptions(*job));
    if (!dataset.ok()) {
      return Report(dataset.status());
    }
    for (const std::string& file : (*dataset)->files()) {
      std::printf("%s\n", file.c_str());
    }
    const double epochs = static_cast<double>(job->steps * job->batch.global) /
                          static_cast<double>((*dataset)->train_windows());
    std::printf(
        "%lld tokens, %lld training samples of %lld, %lld validation samples; the job reads them "
        "%.2f times\n",
        static_cast<long long>((*dataset)->tokens()),
        static_cast<long long>((*dataset)->train_windows()),
        static_cast<long long>(job->batch.sequence),
        static_cast<long long>((*dataset)->validation_windows()), epochs);
    return kDone;
  }

 private:
  std::string path_;
  std::vector<std::string> overrides_;
};

}  // namespace

std::unique_ptr<Command> MakeData() {
  return std::make_unique<Data>();
}

}  // namespace heddle::cli
