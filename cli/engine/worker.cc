#include "elastic/worker/worker.h"

#include <utility>

#include "base/system/launched.h"
#include "base/utf8.h"
#include "cli/emulation_words.h"
#include "cli/engine/engine.h"
#include "cli/engine_commands.h"
#include "cli/output.h"
#include "comm/cost/transport_traits.h"
#include "engine/machine/device_choice.h"

namespace heddle::cli {
namespace {

class Worker : public Command {
 public:
  std::string name() const override { return std::string(kWorkerCommand.name); }
  std::string summary() const override { return std::string(kWorkerCommand.summary); }
  std::string examples() const override {
    return "Examples:\n  heddle worker --coordinator 10.0.0.1:4600 --bind 10.0.0.7\n"
           "  heddle worker --coordinator 127.0.0.1:4600 --emulate speed=0.5,memory=1GiB\n"
           "  heddle worker --coordinator 10.0.0.1:4600 --certs lab/worker/a\n"
           "  heddle worker --coordinator 10.0.0.1:4600 --name gpu-7 --certs /var/lib/heddle "
           "--join-token-file token\n"
           "  mpirun -np 4 heddle worker --coordinator 10.0.0.1:4600\n"
           "  srun -n 4 heddle worker --coordinator 10.0.0.1:4600 --name a,b,c,d";
  }
  void Declare(Arguments& arguments) override {
    arguments.Option(
        "coordinator", &options_.coordinator,
        "HOST:PORT of the coordinator, or those of all that may lead: HOST:PORT,HOST:PORT", true);
    arguments.Option("name", &options_.name,
                     "Name of this worker, or NAME,NAME,… of those that mpirun or srun starts, by "
                     "rank [worker-RANK; alone: the coordinator chooses]");
    arguments.Option(
        "bind", &options_.bind_host,
        "Address or interface that the other workers reach this one under [that of the "
        "route to the coordinator]");
    arguments.Option("certs", &options_.certificates,
                     "Folder of this worker's certificate, or of several workers' by name; alone, "
                     "it names the worker");
    arguments.Option(
        "join-token-file", &options_.join_token_file,
        "File with a token of `heddle certs token`: the worker gets its certificate by "
        "it, and keeps it in DIR/NAME of --certs and --name");
    for (const comm::TransportTraits& traits : comm::DeclaredTransports()) {
      for (const comm::TransportOption& option : traits.options) {
        if (!option.flag.empty()) {
          arguments.Option(option.flag, &options_.transport_options[traits.name][option.name],
                           option.help);
        }
      }
    }
    arguments.Option(
        "failure-domain", &options_.failure_domain,
        "Name of what is lost as one: a rack, a power feed, a spot pool. Copies of its "
        "state are kept in others [unknown]");
    arguments.Option("device", &options_.device,
                     "What it computes on: cpu, cuda, cuda:N or auto [what the job says]");
    arguments.OptionList("emulate", &emulate_,
                         "speed=0.5,memory=1GiB,link=1Gbit: act as a lesser device");
  }
  int Run() override {
    for (const auto& [option, text] :
         {std::pair("--name", options_.name), {"--failure-domain", options_.failure_domain}}) {
      if (const heddle::Status named = CheckUtf8(option, text); !named.ok()) {
        return Report(named);
      }
    }
    if (!options_.device.empty()) {
      const auto launched = FindLauncher();
      const auto device =
          machine::ChooseDevice(options_.device, launched ? launched->local_rank : 0);
      if (!device.ok()) {
        return Report(device.status().WithContext("--device"));
      }
      options_.device = machine::DeviceNameText(*device);
    }
    if (!emulate_.empty()) {
      const auto words = ParseEmulation(emulate_);
      if (!words.ok()) {
        return Report(words.status());
      }
      options_.emulated = true;
      options_.emulation = words->emulation;
    }
    return elastic::RunWorker(options_);
  }

 private:
  elastic::WorkerOptions options_;
  std::vector<std::string> emulate_;
};

}  // namespace

std::unique_ptr<Command> MakeWorker() {
  return std::make_unique<Worker>();
}

}  // namespace heddle::cli
