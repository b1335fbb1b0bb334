#include "cli/command.h"
#include "cli/engine_commands.h"
#include "cli/output.h"
#include "elastic/service/local_run.h"

namespace heddle::cli {
namespace {

class Train : public Command {
 public:
  std::string name() const override { return "train"; }
  std::string summary() const override {
    return "Run a job on this machine: a coordinator and its workers";
  }
  std::string examples() const override {
    return "Examples:\n  heddle train configs/quickstart.yaml\n"
           "  heddle train job.yaml --out runs/a --set steps=100 --set "
           "optimizer.learning_rate=1e-3";
  }
  void Declare(Arguments& arguments) override {
    arguments.Positional("JOB", &options_.job_path, "Job file (YAML)");
    arguments.Option("out", &options_.output,
                     "Folder of the run; the same job resumes there [runs/NAME]");
    arguments.OptionList("set", &options_.overrides,
                         "Override a key: key.path=value; may be repeated");
    arguments.Option("listen", &options_.listen,
                     "HOST:PORT of the coordinator [127.0.0.1, any free port]");
    arguments.Flag("insecure", &options_.insecure,
                   "Listen beyond loopback, where whoever reaches the port may do everything");
    arguments.Flag("quiet", &quiet_, "No progress on standard error");
  }
  int Run() override {
    options_.progress = !quiet_;
    Result<std::string> engine = EnginePath();
    if (!engine.ok()) {
      return Report(engine.status());
    }
    options_.program = *std::move(engine);
    const Result<elastic::RunEnd> end = elastic::RunLocally(options_);
    if (end.ok() && end->suspended) {
      PrintNote(end->reason + "; the same command goes on there");
      return kSuspended;
    }
    return Report(end.status());
  }

 private:
  elastic::LocalRunOptions options_;
  bool quiet_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeTrain() {
  return std::make_unique<Train>();
}

}  // namespace heddle::cli
