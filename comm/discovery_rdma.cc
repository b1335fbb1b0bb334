// The RDMA half of discovery.
#include <algorithm>
#include <charconv>
#include <filesystem>

#include <fmt/format.h>

#include "comm/discovery.h"
#include "comm/sysfs.h"

namespace heddle::comm {

namespace {

namespace fs = std::filesystem;

/// "100 Gb/sec (4X EDR)" in bytes a second; 0: it is something else.
double ParseRate(const std::string& text) {
  double gigabits = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), gigabits);
  return parsed.ec == std::errc() && gigabits > 0 &&
                 std::string_view(parsed.ptr).starts_with(" Gb/sec")
             ? gigabits * 1e9 / 8
             : 0;
}

std::string RdmaKindOf(const std::string& node_type, const std::string& link_layer) {
  if (node_type.starts_with("4:")) {
    return "iwarp";  // An RNIC; its link layer is Ethernet, too.
  }
  return link_layer == "Ethernet" ? "roce" : link_layer == "InfiniBand" ? "infiniband" : "unknown";
}

bool IsSet(const std::string& gid) {
  return gid.find_first_not_of("0:") != std::string::npos;
}

std::vector<RdmaGidEntry> ReadGids(const fs::path& port) {
  std::vector<RdmaGidEntry> gids;
  for (const std::string& entry : SysfsEntries(port / "gids")) {
    int index = 0;
    const auto parsed = std::from_chars(entry.data(), entry.data() + entry.size(), index);
    const std::string gid = SysfsLine(port / "gids" / entry);
    if (parsed.ec == std::errc() && IsSet(gid)) {
      gids.push_back({.index = index,
                      .gid = gid,
                      .type = SysfsLine(port / "gid_attrs/types" / entry),
                      .net_device = SysfsLine(port / "gid_attrs/ndevs" / entry)});
    }
  }
  std::sort(gids.begin(), gids.end(),
            [](const auto& a, const auto& b) { return a.index < b.index; });
  return gids;
}

void JudgeRdma(RdmaPortReport& port) {
  const auto routable = [](const RdmaGidEntry& entry) {
    return entry.type == "RoCE v2" && !entry.gid.starts_with("fe80:");
  };
  if (port.kind == "unknown") {
    port.reason = "neither InfiniBand, RoCE nor iWARP";
  } else if (port.state != "ACTIVE") {
    port.reason = fmt::format("its state is {}", port.state.empty() ? "unknown" : port.state);
  } else if (port.gids.empty()) {
    port.reason = "no GID: its interface has no address";
  } else if (port.kind == "roce" && std::none_of(port.gids.begin(), port.gids.end(), routable)) {
    port.reason = "no GID of RoCE version 2 with an IP address: its interface has none";
  } else {
    port.usable = true;
    port.reason = fmt::format("active, {}", SpeedText(port.bytes_per_second));
  }
}

}  // namespace

std::vector<RdmaPortReport> ReadRdmaPorts(const std::string& sys) {
  const fs::path devices = fs::path(sys) / "class/infiniband";
  std::vector<RdmaPortReport> reports;
  for (const std::string& device : SysfsEntries(devices)) {
    for (const std::string& entry : SysfsEntries(devices / device / "ports")) {
      RdmaPortReport report;
      report.device = device;
      const auto parsed = std::from_chars(entry.data(), entry.data() + entry.size(), report.port);
      if (parsed.ec != std::errc()) {
        continue;
      }
      const fs::path port = devices / device / "ports" / entry;
      report.kind =
          RdmaKindOf(SysfsLine(devices / device / "node_type"), SysfsLine(port / "link_layer"));
      const std::string state = SysfsLine(port / "state");  // "4: ACTIVE"
      report.state =
          state.find(": ") == std::string::npos ? state : state.substr(state.find(": ") + 2);
      report.bytes_per_second = ParseRate(SysfsLine(port / "rate"));
      report.numa_node = static_cast<int>(
          std::clamp<int64_t>(SysfsNumber(devices / device / "device/numa_node", -1), -1, 1 << 20));
      report.gids = ReadGids(port);
      JudgeRdma(report);
      reports.push_back(std::move(report));
    }
  }
  return reports;
}

}  // namespace heddle::comm
