#include <algorithm>
#include <cctype>
#include <cstdio>
#include <utility>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/output.h"
#include "comm/endpoint/link_survey.h"
#include "comm/links/discovery.h"
#include "comm/transport/registry.h"
#include "engine/job/job.h"

namespace heddle::cli {
namespace {

std::string Gigabits(double bytes_per_second) {
  return bytes_per_second > 0 ? fmt::format("{:.4g} Gbit/s", bytes_per_second * 8 / 1e9)
                              : std::string(1, '-');
}

std::string NumaText(int node) {
  return node < 0 ? std::string(1, '-') : std::to_string(node);
}

/// The ports that a worker at the chosen interface's address would use, by transport.
std::vector<std::pair<const comm::TransportTraits*, std::vector<comm::NetworkPort>>> PortsBeside(
    const std::vector<comm::InterfaceVerdict>& interfaces) {
  std::string address;
  for (const auto& verdict : interfaces) {
    if (verdict.chosen) {
      address = verdict.interface.ips.front();
    }
  }
  return comm::ListNetworkPorts(address);
}

std::string LowerCase(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char letter) {
    return static_cast<char>(std::tolower(letter));
  });
  return text;
}

void PrintPorts(const std::string& title, const std::vector<comm::NetworkPort>& ports) {
  if (ports.empty()) {
    std::printf("no %s device\n", title.c_str());
    return;
  }
  std::printf("%-2s%-14s %-10s %-13s %6s %4s %-16s %s\n", "", (title + " PORT").c_str(), "KIND",
              "SPEED", "GIDS", "NUMA", "ADDRESS", "WHY");
  for (const comm::NetworkPort& port : ports) {
    std::printf("%-2s%-14s %-10s %-13s %6zu %4s %-16s %s\n", port.chosen ? "*" : "",
                port.name.c_str(), port.kind.c_str(), Gigabits(port.bytes_per_second).c_str(),
                port.addresses.size(), NumaText(port.numa_node).c_str(),
                port.ip.empty() ? "-" : port.ip.c_str(), port.reason.c_str());
  }
}

void PrintMachine(const std::vector<comm::InterfaceVerdict>& interfaces) {
  std::printf("%-2s%-14s %-10s %-13s %6s %4s %-16s %s\n", "", "INTERFACE", "MEDIUM", "SPEED", "MTU",
              "NUMA", "ADDRESS", "WHY");
  for (const auto& verdict : interfaces) {
    const comm::NetworkInterface& interface = verdict.interface;
    std::printf("%-2s%-14s %-10s %-13s %6d %4s %-16s %s\n", verdict.chosen ? "*" : "",
                interface.name.c_str(), interface.medium.c_str(),
                Gigabits(interface.bytes_per_second).c_str(), interface.mtu_bytes,
                NumaText(interface.numa_node).c_str(),
                interface.ips.empty() ? "-" : interface.ips.front().c_str(),
                verdict.reason.c_str());
  }
  for (const auto& [traits, ports] : PortsBeside(interfaces)) {
    PrintPorts(traits->title, ports);
  }
  std::printf(
      "* would be used. A worker takes the address of its route to the coordinator; --bind names "
      "another.\n");
}

nlohmann::json PortsJson(const std::vector<comm::NetworkPort>& ports) {
  nlohmann::json json = nlohmann::json::array();
  for (const comm::NetworkPort& port : ports) {
    nlohmann::json addresses = nlohmann::json::array();
    for (const comm::NetworkPort::Address& address : port.addresses) {
      addresses.push_back({{"index", address.index},
                           {"gid", address.text},
                           {"type", address.type},
                           {"net_device", address.net_device}});
    }
    json.push_back({{"device", port.device},
                    {"port", port.port},
                    {"kind", port.kind},
                    {"state", port.state},
                    {"bytes_per_second", port.bytes_per_second},
                    {"numa_node", port.numa_node},
                    {"gids", addresses},
                    {"gid_index", port.address_index},
                    {"net_device", port.net_device},
                    {"address", port.ip},
                    {"usable", port.usable},
                    {"chosen", port.chosen},
                    {"reason", port.reason}});
  }
  return json;
}

nlohmann::json MachineJson(const std::vector<comm::InterfaceVerdict>& interfaces) {
  nlohmann::json json{{"interfaces", nlohmann::json::array()}};
  for (const auto& verdict : interfaces) {
    const comm::NetworkInterface& interface = verdict.interface;
    json["interfaces"].push_back({{"name", interface.name},
                                  {"kind", comm::InterfaceKindName(interface.kind)},
                                  {"medium", interface.medium},
                                  {"up", interface.up},
                                  {"bytes_per_second", interface.bytes_per_second},
                                  {"mtu_bytes", interface.mtu_bytes},
                                  {"numa_node", interface.numa_node},
                                  {"driver", interface.driver},
                                  {"addresses", interface.ips},
                                  {"usable", verdict.usable},
                                  {"chosen", verdict.chosen},
                                  {"reason", verdict.reason}});
  }
  for (const auto& [traits, ports] : PortsBeside(interfaces)) {
    json[LowerCase(traits->title)] = PortsJson(ports);
  }
  return json;
}

/// What comm.tls means for the transports that leave the machine.
std::string WhatTlsMeans() {
  std::string encrypted;
  std::string unused;
  for (const comm::TransportTraits& traits : comm::DeclaredTransports()) {
    if (!traits.within_host) {
      std::string& list = traits.encrypts ? encrypted : unused;
      list += fmt::format("{}{} is {}", list.empty() ? "" : ", ", traits.title,
                          traits.encrypts ? "encrypted" : "not used");
    }
  }
  return encrypted + (encrypted.empty() || unused.empty() ? "" : ", ") + unused;
}

class Links : public Command {
 public:
  std::string name() const override { return "links"; }
  std::string summary() const override {
    return "Show this machine's networks, or measure the links of a job's workers";
  }
  std::string examples() const override {
    return "Examples:\n  heddle links\n  heddle links job.yaml --json";
  }
  void Declare(Arguments& arguments) override {
    arguments.Positional("job", &path_, "Job file: every pair of its workers is measured here",
                         false);
    arguments.OptionList("set", &overrides_, "key.path=value, overrides the job file; repeatable");
    arguments.Option("bind", &bind_, "Address or interface of the endpoints [127.0.0.1]");
    arguments.Flag("json", &json_, "One JSON object on standard output");
  }
  int Run() override { return path_.empty() ? ShowMachine() : MeasureJob(); }

 private:
  int ShowMachine() const {
    const auto interfaces = comm::JudgeInterfaces(comm::FindInterfaces());
    if (json_) {
      std::printf("%s\n", MachineJson(interfaces).dump(2).c_str());
    } else {
      PrintMachine(interfaces);
    }
    return kDone;
  }

  int MeasureJob() const {
    const auto job = job::LoadJob(path_, overrides_);
    if (!job.ok()) {
      return Report(job.status());
    }
    comm::SurveyOptions options;
    for (const job::WorkerSection& worker : job->workers) {
      options.workers.push_back(
          {.name = worker.name, .link_bytes_per_second = worker.emulation.link_bytes_per_second});
    }
    options.transports = job->comm.transports;
    options.rule = job->comm.choose;
    options.tls = job->comm.tls;
    if (!bind_.empty()) {
      const auto bind = comm::FindBindAddress(bind_, "");
      if (!bind.ok()) {
        return Report(bind.status());
      }
      options.bind_host = *bind;
    }
    const auto survey = comm::SurveyLinks(options);
    if (!survey.ok()) {
      return Report(survey.status());
    }
    if (json_) {
      std::printf("%s\n", SurveyJson(*survey, options).dump(2).c_str());
    } else {
      PrintSurvey(*survey, options);
    }
    return kDone;
  }

  static nlohmann::json SurveyJson(const comm::LinkSurvey& survey,
                                   const comm::SurveyOptions& options) {
    const auto name = [&](int worker) { return options.workers[static_cast<size_t>(worker)].name; };
    const auto link = [](const comm::Link& measured) {
      return nlohmann::json{{"latency_seconds", measured.latency_seconds},
                            {"bytes_per_second", measured.bytes_per_second}};
    };
    nlohmann::json json{{"tls", options.tls},
                        {"workers", nlohmann::json::array()},
                        {"pairs", nlohmann::json::array()},
                        {"islands", nlohmann::json::array()}};
    for (const auto& worker : options.workers) {
      json["workers"].push_back(worker.name);
    }
    for (const auto& pair : survey.pairs) {
      nlohmann::json entry{{"from", name(pair.lower)},
                           {"to", name(pair.higher)},
                           {"transport", pair.chosen},
                           {"reason", pair.reason},
                           {"there", link(survey.links.At(pair.lower, pair.higher))},
                           {"back", link(survey.links.At(pair.higher, pair.lower))},
                           {"trials", nlohmann::json::array()}};
      for (const auto& trial : pair.trials) {
        nlohmann::json tried{{"transport", trial.transport}, {"works", trial.status.ok()}};
        if (!trial.ports.empty()) {
          tried["ports"] = trial.ports;
        }
        if (trial.status.ok()) {
          tried["there"] = link(trial.there);
          tried["back"] = link(trial.back);
        } else {
          tried["reason"] = trial.status.message();
        }
        entry["trials"].push_back(tried);
      }
      json["pairs"].push_back(entry);
    }
    for (const auto& island : survey.islands) {
      nlohmann::json members = nlohmann::json::array();
      for (const int worker : island) {
        members.push_back(name(worker));
      }
      json["islands"].push_back(members);
    }
    return json;
  }

  static void PrintSurvey(const comm::LinkSurvey& survey, const comm::SurveyOptions& options) {
    const auto name = [&](int worker) { return options.workers[static_cast<size_t>(worker)].name; };
    std::printf("%-2s%-14s %-14s %-8s %10s %10s %10s  %s\n", "", "FROM", "TO", "BY", "LATENCY",
                "THERE", "BACK", "WHY");
    for (const auto& pair : survey.pairs) {
      for (const auto& trial : pair.trials) {
        const bool chosen = trial.transport == pair.chosen;
        const char* mark = chosen ? "*" : "";
        if (!trial.status.ok()) {
          std::printf("%-2s%-14s %-14s %-8s %10s %10s %10s  %s\n", mark, name(pair.lower).c_str(),
                      name(pair.higher).c_str(), trial.transport.c_str(), "-", "-", "-",
                      trial.status.message().c_str());
          continue;
        }
        std::printf("%-2s%-14s %-14s %-8s %7.1f us %5.2f GB/s %5.2f GB/s  %s%s%s\n", mark,
                    name(pair.lower).c_str(), name(pair.higher).c_str(), trial.transport.c_str(),
                    1e6 * std::max(trial.there.latency_seconds, trial.back.latency_seconds),
                    trial.there.bytes_per_second / 1e9, trial.back.bytes_per_second / 1e9,
                    chosen ? pair.reason.c_str() : "works, not chosen",
                    trial.ports.empty() ? "" : "; ", trial.ports.c_str());
      }
    }
    for (size_t i = 0; i < survey.islands.size(); ++i) {
      std::string members;
      for (const int worker : survey.islands[i]) {
        members += ' ';
        members += name(worker);
      }
      std::printf("island %zu:%s\n", i, members.c_str());
    }
    std::printf("* is what a job would use, if it measured the same (comm.choose)\n");
    if (options.tls) {
      std::printf("comm.tls is on: %s\n", WhatTlsMeans().c_str());
    }
  }

  std::string path_;
  std::vector<std::string> overrides_;
  std::string bind_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeLinks() {
  return std::make_unique<Links>();
}

}  // namespace heddle::cli
