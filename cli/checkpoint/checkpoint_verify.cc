#include <cstdio>
#include <vector>

#include "checkpoint/formats/format.h"
#include "checkpoint/read/inspect.h"
#include "checkpoint/read/verify.h"
#include "checkpoint/storage/manifest_file.h"
#include "cli/checkpoint/checkpoint.h"
#include "cli/checkpoint/transfer_progress.h"
#include "cli/output.h"

namespace heddle::cli {
namespace {

class Verify : public Command {
 public:
  std::string name() const override { return "verify"; }
  std::string summary() const override {
    return "Check every byte of a checkpoint: 0 sound, 1 damaged, 2 none";
  }
  std::string examples() const override {
    return "Examples:\n  heddle checkpoint verify runs/quickstart/checkpoints/step-00000100";
  }
  void Declare(Arguments& arguments) override {
    arguments.Positional("PATH", &path_, "A model: a file or a folder, of any of the formats");
    arguments.Flag("quiet", &quiet_, "No progress");
  }
  int Run() override {
    const auto native = checkpoint::FindFormat("native");
    return native.ok() && (*native)->recognise(path_) ? VerifyNative() : VerifyForeign();
  }

 private:
  int VerifyNative() const {
    Result<std::vector<checkpoint::Damage>> damages = InternalError("");
    {
      TransferProgress progress(quiet_);
      damages =
          checkpoint::Verify(path_, [&](int64_t done, int64_t all) { progress.Update(done, all); });
    }
    if (!damages.ok()) {
      Report(damages.status());
      return kBadUsage;
    }
    for (const checkpoint::Damage& damage : *damages) {
      std::printf("%s\n", checkpoint::ToString(damage).c_str());
    }
    if (damages->empty()) {
      std::printf("sound: %s\n", path_.c_str());
      const auto manifest = checkpoint::LoadManifest(path_);
      const std::string note = manifest.ok() ? checkpoint::LossyNote(*manifest) : "";
      if (!note.empty()) {
        std::printf("note: %s\n", note.c_str());
      }
    }
    return damages->empty() ? kDone : kFailed;
  }

  /// Verifies a model of another format, which has no checksums: opening it checks what can be
  /// checked.
  int VerifyForeign() const {
    const auto source = checkpoint::OpenModel(path_);
    if (!source.ok()) {
      const bool damaged = source.status().code() == StatusCode::kDataLoss;
      Report(source.status());
      return damaged ? kFailed : kBadUsage;
    }
    std::printf("sound: %s (%s has no checksums: names, shapes and sizes were checked)\n",
                path_.c_str(), (*source)->format().c_str());
    return kDone;
  }

  std::string path_;
  bool quiet_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeCheckpointVerify() {
  return std::make_unique<Verify>();
}

}  // namespace heddle::cli
