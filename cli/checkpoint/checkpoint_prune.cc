#include <cstdio>

#include "checkpoint/store/store.h"
#include "cli/checkpoint/checkpoint.h"
#include "cli/option_number.h"
#include "cli/output.h"

namespace heddle::cli {
namespace {

constexpr int64_t kMax = int64_t{1} << 40;

class Prune : public Command {
 public:
  std::string name() const override { return "prune"; }
  std::string summary() const override {
    return "Remove checkpoints of a folder by rules, never the newest sound one";
  }
  std::string examples() const override {
    return "Examples:\n"
           "  heddle checkpoint prune runs/quickstart/checkpoints --last 2\n"
           "  heddle checkpoint prune runs/long/checkpoints --last 3 --every 1000 --best --dry-run";
  }
  void Declare(Arguments& arguments) override {
    arguments.Positional("FOLDER", &root_, "Folder of a run's checkpoints");
    arguments.Option("last", &last_, "How many of the newest stay; at least 1", true);
    arguments.Option("every", &every_, "Those whose step this number divides stay too");
    arguments.Flag("best", &options_.keep_best, "The one with the least validation loss stays too");
    arguments.Flag("dry-run", &dry_run_, "Only say which would go");
  }
  int Run() override {
    const Status status = Read();
    if (!status.ok()) {
      return Report(status);
    }
    const auto leaving =
        dry_run_ ? checkpoint::ChoosePruned(root_, options_) : checkpoint::Prune(root_, options_);
    if (!leaving.ok()) {
      return Report(leaving.status());
    }
    for (const int64_t step : *leaving) {
      std::printf("%s step %lld\n", dry_run_ ? "would remove" : "removed",
                  static_cast<long long>(step));
    }
    return kDone;
  }

 private:
  Status Read() {
    HEDDLE_ASSIGN_OR_RETURN(options_.keep_last, ParseOption("last", last_, 1, kMax));
    if (!every_.empty()) {
      HEDDLE_ASSIGN_OR_RETURN(options_.keep_every, ParseOption("every", every_, 1, kMax));
    }
    return Status::Ok();
  }

  std::string root_;
  std::string last_;
  std::string every_;
  bool dry_run_ = false;
  checkpoint::RetentionOptions options_;
};

}  // namespace

std::unique_ptr<Command> MakeCheckpointPrune() {
  return std::make_unique<Prune>();
}

}  // namespace heddle::cli
