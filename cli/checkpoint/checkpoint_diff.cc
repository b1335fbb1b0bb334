#include <cstdio>

#include <nlohmann/json.hpp>

#include "checkpoint/convert/diff.h"
#include "cli/checkpoint/checkpoint.h"
#include "cli/checkpoint/transfer_progress.h"
#include "cli/output.h"

namespace heddle::cli {
namespace {

class Diff : public Command {
 public:
  std::string name() const override { return "diff"; }
  std::string summary() const override {
    return "Compare two models of any formats: 0 equal, 1 different, 2 not models";
  }
  std::string examples() const override {
    return "Examples:\n  heddle checkpoint diff runs/a/checkpoints/step-00000100 my-model --json";
  }
  void Declare(Arguments& arguments) override {
    arguments.Positional("A", &a_, "A model: a file or a folder, of any of the formats");
    arguments.Positional("B", &b_, "Another");
    arguments.Flag("json", &json_, "One JSON object on standard output, and no progress");
    arguments.Flag("quiet", &quiet_, "No progress");
  }
  int Run() override {
    Result<checkpoint::ModelDifference> difference = InternalError("");
    {
      TransferProgress progress(json_ || quiet_);
      difference =
          checkpoint::Diff(a_, b_, [&](int64_t done, int64_t all) { progress.Update(done, all); });
    }
    if (!difference.ok()) {
      Report(difference.status());
      return kBadUsage;  // Code 1 means that they differ.
    }
    if (json_) {
      PrintJson(*difference);
    } else {
      PrintText(*difference);
    }
    return difference->equal ? kDone : kFailed;
  }

 private:
  static void PrintJson(const checkpoint::ModelDifference& difference) {
    using Json = nlohmann::ordered_json;
    Json tensors = Json::array();
    for (const auto& tensor : difference.tensors) {
      Json entry = {{"name", tensor.name},
                    {"equal", tensor.equal},
                    {"max_abs", tensor.max_abs},
                    {"mean_abs", tensor.mean_abs}};
      if (!tensor.role.empty()) {
        entry["role"] = tensor.role;
      }
      if (!tensor.what.empty()) {
        entry["what"] = tensor.what;
      }
      tensors.push_back(std::move(entry));
    }
    const Json json = {{"equal", difference.equal}, {"tensors", std::move(tensors)}};
    std::printf("%s\n", json.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  }

  static void PrintText(const checkpoint::ModelDifference& difference) {
    for (const auto& tensor : difference.tensors) {
      if (!tensor.equal) {
        std::printf("%s%s%s: %s%slargest %.3g, mean %.3g\n", tensor.name.c_str(),
                    tensor.role.empty() ? "" : " ", tensor.role.c_str(), tensor.what.c_str(),
                    tensor.what.empty() ? "" : "; ", tensor.max_abs, tensor.mean_abs);
      }
    }
    std::printf("%s: %zu tensors\n", difference.equal ? "equal" : "different",
                difference.tensors.size());
  }

  std::string a_;
  std::string b_;
  bool json_ = false;
  bool quiet_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeCheckpointDiff() {
  return std::make_unique<Diff>();
}

}  // namespace heddle::cli
