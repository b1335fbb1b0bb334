#include <cstdio>

#include "base/system/file.h"
#include "base/thread.h"
#include "checkpoint/convert/reshard.h"
#include "cli/checkpoint/checkpoint.h"
#include "cli/checkpoint/transfer_progress.h"
#include "cli/option_number.h"
#include "cli/output.h"

namespace heddle::cli {
namespace {

constexpr int64_t kWorkersMost = 65536;
constexpr int64_t kPlanBytesMost = 64 << 20;

class Reshard : public Command {
 public:
  std::string name() const override { return "reshard"; }
  std::string summary() const override {
    return "Rewrite a native checkpoint as the files of other writers";
  }
  std::string examples() const override {
    return "Examples:\n"
           "  heddle checkpoint reshard runs/a/checkpoints/step-00000600 eight --workers 8\n"
           "  heddle checkpoint reshard runs/a/checkpoints/step-00000600 planned --plan plan.json\n"
           "The same command again goes on with one that was killed.";
  }
  void Declare(Arguments& arguments) override {
    arguments.Positional("SRC", &source_, "A native checkpoint");
    arguments.Positional("DST", &target_, "The folder to write");
    arguments.Option("workers", &workers_,
                     "So many writers, each with the same share of the bytes");
    arguments.Option("plan", &plan_, "The workers of this plan (JSON), each with what it writes");
    arguments.Flag("overwrite", &options_.overwrite, "Replace the model that lies at DST");
    arguments.Flag("json", &json_, "One JSON object on standard output, and no progress");
    arguments.Flag("quiet", &quiet_, "No progress");
  }
  int Run() override {
    const auto choose = Choice();
    if (!choose.ok()) {
      return Report(choose.status());
    }
    options_.threads = Cores();
    options_.note = PrintNote;
    Result<checkpoint::ReshardSummary> summary = InternalError("");
    {
      TransferProgress progress(json_ || quiet_);
      options_.progress = [&](int64_t done, int64_t all) { progress.Update(done, all); };
      summary = checkpoint::Reshard(source_, target_, *choose, options_);
    }
    if (!summary.ok()) {
      return Report(summary.status());
    }
    std::printf(json_ ? "{\"files\": %lld, \"tensors\": %lld, \"bytes\": %lld}\n"
                      : "%lld files, %lld tensors, %lld bytes; every tensor's digest as before\n",
                static_cast<long long>(summary->files), static_cast<long long>(summary->tensors),
                static_cast<long long>(summary->bytes));
    return kDone;
  }

 private:
  Result<checkpoint::ChooseFiles> Choice() const {
    if (workers_.empty() == plan_.empty()) {
      return InvalidArgumentError("give one of --workers and --plan");
    }
    if (!workers_.empty()) {
      HEDDLE_ASSIGN_OR_RETURN(const int64_t workers,
                              ParseOption("workers", workers_, 1, kWorkersMost));
      return checkpoint::ChooseFiles([workers](const checkpoint::Manifest& manifest) {
        return Result(checkpoint::FilesOfWriters(manifest, workers));
      });
    }
    HEDDLE_ASSIGN_OR_RETURN(const std::string text, ReadFile(plan_, kPlanBytesMost));
    auto plan = program::PlanFromJson(text);
    HEDDLE_RETURN_IF_ERROR(plan.status().WithContext("{}", plan_));
    return checkpoint::ChooseFiles(
        [path = plan_, plan = *std::move(plan)](
            const checkpoint::Manifest& manifest) -> Result<std::vector<checkpoint::FilePlan>> {
          auto files = checkpoint::FilesOfPlan(manifest, plan);
          HEDDLE_RETURN_IF_ERROR(files.status().WithContext("{}", path));
          return files;
        });
  }

  std::string source_;
  std::string target_;
  std::string workers_;
  std::string plan_;
  bool json_ = false;
  bool quiet_ = false;
  checkpoint::ReshardOptions options_;
};

}  // namespace

std::unique_ptr<Command> MakeCheckpointReshard() {
  return std::make_unique<Reshard>();
}

}  // namespace heddle::cli
