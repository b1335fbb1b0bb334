#include <cstdio>

#include "base/tensor/dtype.h"
#include "base/thread.h"
#include "base/units.h"
#include "checkpoint/convert/convert.h"
#include "cli/checkpoint/checkpoint.h"
#include "cli/checkpoint/transfer_progress.h"
#include "cli/command.h"
#include "cli/output.h"

namespace heddle::cli {
namespace {

class Convert : public Command {
 public:
  std::string name() const override { return "convert"; }
  std::string summary() const override {
    return "Write a model in another format: native, safetensors or pytorch";
  }
  std::string examples() const override {
    return "Examples:\n"
           "  heddle checkpoint convert runs/a/checkpoints/step-00000600 my-model --to safetensors "
           "--dtype bf16\n"
           "  heddle checkpoint convert path/to/Qwen2-0.5B qwen --to native\n"
           "  heddle checkpoint convert my-model model.pt --to pytorch\n"
           "The same command again goes on with one that was killed.";
  }
  void Declare(Arguments& arguments) override {
    arguments.Positional("SRC", &source_, "A model: a file or a folder, of any of the formats");
    arguments.Positional("DST", &target_, "Where to write it: a folder; a file for .pt and .bin");
    arguments.Option("to", &options_.to, "Format to write: native, safetensors, pytorch", true);
    arguments.Option("dtype", &dtype_,
                     "fp32, bf16 or fp16; without it every tensor keeps its own element type");
    arguments.Option("max-shard-size", &shard_, "Largest file of elements (5GB)");
    arguments.Flag("overwrite", &options_.overwrite, "Replace the model that lies at DST");
    arguments.Flag("json", &json_, "One JSON object on standard output, and no progress");
    arguments.Flag("quiet", &quiet_, "No progress");
  }
  int Run() override {
    const Status status = Read();
    if (!status.ok()) {
      return Report(status);
    }
    Result<checkpoint::ConvertSummary> summary = InternalError("");
    {
      TransferProgress progress(json_ || quiet_);
      options_.progress = [&](int64_t done, int64_t all) { progress.Update(done, all); };
      options_.note = PrintNote;
      summary = checkpoint::Convert(source_, target_, options_);
    }
    if (!summary.ok()) {
      return Report(summary.status());
    }
    std::printf(json_ ? "{\"tensors\": %lld, \"bytes\": %lld}\n" : "%lld tensors, %lld bytes\n",
                static_cast<long long>(summary->tensors), static_cast<long long>(summary->bytes));
    return kDone;
  }

 private:
  Status Read() {
    options_.threads = Cores();
    if (!dtype_.empty()) {
      const auto dtype = ParseDType(dtype_);
      if (!dtype.ok() ||
          (*dtype != DType::kF32 && *dtype != DType::kBF16 && *dtype != DType::kF16)) {
        return InvalidArgumentError("--dtype {}: fp32, bf16 or fp16", dtype_);
      }
      options_.dtype = *dtype;
    }
    if (!shard_.empty()) {
      auto size = ParseByteSize(shard_);
      HEDDLE_RETURN_IF_ERROR(size.status().WithContext("--max-shard-size {}", shard_));
      if (size->value <= 0) {
        return InvalidArgumentError("--max-shard-size {}: must be positive", shard_);
      }
      options_.max_shard_bytes = size->value;
    }
    return Status::Ok();
  }

  std::string source_;
  std::string target_;
  std::string dtype_;
  std::string shard_;
  bool json_ = false;
  bool quiet_ = false;
  checkpoint::ConvertOptions options_;
};

}  // namespace

std::unique_ptr<Command> MakeCheckpointConvert() {
  return std::make_unique<Convert>();
}

}  // namespace heddle::cli
