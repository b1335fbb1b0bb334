#include <charconv>
#include <cstdio>

#include "checkpoint/store.h"
#include "cli/checkpoint.h"
#include "cli/output.h"

namespace heddle::cli {
namespace {

class Prune : public Command {
 public:
  std::string name() const override { return "prune"; }
  std::string summary() const override {
    return "Remove the oldest checkpoints of a folder, never the newest sound one";
  }
  std::string examples() const override {
    return "Examples:\n  heddle checkpoint prune runs/quickstart/checkpoints --keep 2";
  }
  void Declare(Arguments& arguments) override {
    arguments.Positional("FOLDER", &root_, "Folder of a run's checkpoints");
    arguments.Option("keep", &keep_, "How many of the newest stay; at least 1", true);
  }
  int Run() override {
    checkpoint::RetentionOptions options;
    const char* const end = keep_.data() + keep_.size();
    const auto parsed = std::from_chars(keep_.data(), end, options.keep_last);
    if (parsed.ec != std::errc() || parsed.ptr != end || options.keep_last < 1) {
      return Report(InvalidArgumentError("--keep {}: a number of at least 1", keep_));
    }
    const auto removed = checkpoint::Prune(root_, options);
    if (!removed.ok()) {
      return Report(removed.status());
    }
    for (const int64_t step : *removed) {
      std::printf("removed step %lld\n", static_cast<long long>(step));
    }
    return kDone;
  }

 private:
  std::string root_;
  std::string keep_;
};

}  // namespace

std::unique_ptr<Command> MakeCheckpointPrune() {
  return std::make_unique<Prune>();
}

}  // namespace heddle::cli
