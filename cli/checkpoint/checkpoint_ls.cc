#include <cstdio>

#include <nlohmann/json.hpp>

#include "checkpoint/format/extra.h"
#include "checkpoint/storage/manifest_file.h"
#include "checkpoint/store/store.h"
#include "cli/checkpoint/checkpoint.h"
#include "cli/output.h"

namespace heddle::cli {
namespace {

class Ls : public Command {
 public:
  std::string name() const override { return "ls"; }
  std::string summary() const override { return "List the checkpoints of a folder, oldest first"; }
  std::string examples() const override {
    return "Examples:\n  heddle checkpoint ls runs/quickstart/checkpoints";
  }
  void Declare(Arguments& arguments) override {
    arguments.Positional("FOLDER", &root_, "Folder of a run's checkpoints");
    arguments.Flag("json", &json_, "One JSON object on standard output");
  }
  int Run() override {
    const auto entries = checkpoint::List(root_);
    if (!entries.ok()) {
      return Report(entries.status());
    }
    if (entries->empty()) {
      return Report(NotFoundError("{}: no checkpoints in this folder", root_));
    }
    using Json = nlohmann::ordered_json;
    Json list = Json::array();
    for (const checkpoint::Entry& entry : *entries) {
      const auto manifest = checkpoint::LoadManifest(entry.path);
      Json shown = {{"step", entry.step}, {"path", entry.path}};
      if (manifest.ok()) {
        shown["created"] = manifest->created;
        shown["guarantee"] = checkpoint::GuaranteeOf(manifest->job).guarantee;
        shown["bytes"] = manifest->RawBytes();
        shown["stored_bytes"] = manifest->StoredBytes();
      } else {
        shown["damaged"] = manifest.status().message();
      }
      if (!json_) {
        PrintText(shown);
      }
      list.push_back(std::move(shown));
    }
    if (json_) {
      const Json json = {{"checkpoints", std::move(list)}};
      std::printf("%s\n", json.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
    }
    return kDone;
  }

 private:
  static void PrintText(const nlohmann::ordered_json& entry) {
    constexpr double kMega = 1e6;
    if (entry.contains("damaged")) {
      std::printf("%10lld  damaged: %s\n", entry["step"].get<long long>(),
                  entry["damaged"].get<std::string>().c_str());
      return;
    }
    std::printf("%10lld  %10.1f MB  stored %10.1f MB  %-14s  %s\n", entry["step"].get<long long>(),
                entry["bytes"].get<double>() / kMega, entry["stored_bytes"].get<double>() / kMega,
                entry["guarantee"].get<std::string>().c_str(),
                entry["path"].get<std::string>().c_str());
  }

  std::string root_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeCheckpointLs() {
  return std::make_unique<Ls>();
}

}  // namespace heddle::cli
