#include <cstdio>

#include "checkpoint/formats/describe.h"
#include "checkpoint/read/inspect.h"
#include "checkpoint/storage/manifest_file.h"
#include "cli/checkpoint/checkpoint.h"
#include "cli/output.h"

namespace heddle::cli {
namespace {

class Inspect : public Command {
 public:
  std::string name() const override { return "inspect"; }
  std::string summary() const override { return "Show what a checkpoint or a model file holds"; }
  std::string examples() const override {
    return "Examples:\n  heddle checkpoint inspect runs/quickstart/checkpoints/step-00000100 "
           "--json\n  heddle checkpoint inspect model.safetensors";
  }
  void Declare(Arguments& arguments) override {
    arguments.Positional("PATH", &path_, "A model: a file or a folder, of any of the formats");
    arguments.Flag("json", &json_, "One JSON object on standard output");
  }
  int Run() override {
    const auto source = checkpoint::OpenModel(path_);
    if (!source.ok()) {
      return Report(source.status());
    }
    if ((*source)->format() != "native") {
      Print(json_ ? checkpoint::DescribeJson(**source) + "\n" : checkpoint::DescribeText(**source));
      return kDone;
    }
    const auto manifest = checkpoint::LoadManifest(path_);
    if (!manifest.ok()) {
      return Report(manifest.status());
    }
    Print(json_ ? checkpoint::InspectJson(*manifest) + "\n" : checkpoint::InspectText(*manifest));
    return kDone;
  }

 private:
  static void Print(const std::string& text) { std::fputs(text.c_str(), stdout); }

  std::string path_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeCheckpointInspect() {
  return std::make_unique<Inspect>();
}

}  // namespace heddle::cli
