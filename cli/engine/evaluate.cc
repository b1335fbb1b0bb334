#include <cstdio>

#include <nlohmann/json.hpp>

#include "base/thread.h"
#include "checkpoint/convert/model_view.h"
#include "cli/engine/engine.h"
#include "cli/engine_commands.h"
#include "cli/option_number.h"
#include "cli/output.h"
#include "engine/evaluate/loss.h"

namespace heddle::cli {
namespace {

class Evaluate : public Command {
 public:
  std::string name() const override { return std::string(kEvaluateCommand.name); }
  std::string summary() const override { return std::string(kEvaluateCommand.summary); }
  std::string examples() const override {
    return "Examples:\n"
           "  heddle evaluate runs/quickstart/checkpoints/step-00000600 --data book.txt\n"
           "  heddle evaluate gpt2 --data val.bin --context 512 --json";
  }
  void Declare(Arguments& arguments) override {
    arguments.Positional("CHECKPOINT", &path_,
                         "A model: a file or a folder, of any of the formats");
    arguments.Option("data", &request_.data, "Text, or token ids in a file that ends in .bin",
                     true);
    arguments.Option("token-type", &type_, "uint16 or uint32: ids of this width [uint16 for .bin]");
    arguments.Option("context", &context_, "Tokens of a window [the model's length]");
    arguments.Flag("json", &json_, "{\"loss\", \"tokens\"} on standard output");
  }
  int Run() override {
    const Status status = Read();
    const Result<evaluate::Loss> loss = status.ok() ? Measure() : status;
    if (!loss.ok()) {
      return Report(loss.status());
    }
    if (json_) {
      const nlohmann::ordered_json json = {{"loss", loss->mean}, {"tokens", loss->tokens}};
      std::printf("%s\n", json.dump().c_str());
    } else {
      std::printf("loss %.6f nats a token, %lld tokens\n", loss->mean,
                  static_cast<long long>(loss->tokens));
    }
    return kDone;
  }

 private:
  Status Read() {
    request_.threads = Cores();
    if (!context_.empty()) {
      HEDDLE_ASSIGN_OR_RETURN(request_.context,
                              ParseOption("context", context_, 2, int64_t{1} << 40));
    }
    if (!type_.empty() && type_ != "uint16" && type_ != "uint32") {
      return InvalidArgumentError("--token-type {}: uint16 or uint32", type_);
    }
    if (type_ == "uint32") {
      request_.format = data::Format::kUint32;
    } else if (type_ == "uint16" || request_.data.ends_with(".bin")) {
      request_.format = data::Format::kUint16;
    }
    return Status::Ok();
  }

  Result<evaluate::Loss> Measure() const {
    HEDDLE_ASSIGN_OR_RETURN(auto opened, checkpoint::OpenModel(path_));
    auto view = checkpoint::ViewAs(std::move(opened), checkpoint::Naming::kHeddle);
    HEDDLE_RETURN_IF_ERROR(view.status().WithContext("{}", path_));
    if (!view->renamed) {
      return InvalidArgumentError("{}: {}", path_, view->notes.front());
    }
    for (const std::string& note : view->notes) {
      std::fprintf(stderr, "note: %s\n", note.c_str());
    }
    return evaluate::EvaluateLoss(*view->source, request_);
  }

  std::string path_;
  std::string type_;
  std::string context_;
  bool json_ = false;
  evaluate::LossRequest request_;
};

}  // namespace

std::unique_ptr<Command> MakeEvaluate() {
  return std::make_unique<Evaluate>();
}

}  // namespace heddle::cli
