#include "comm/transport/registry.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace heddle::comm {

namespace {

struct Registration {
  RegisteredTransport::Open open = nullptr;
  RegisteredTransport::ListPorts list_ports = nullptr;
};

std::map<std::string, Registration, std::less<>>& Registrations() {
  static std::map<std::string, Registration, std::less<>> registrations;
  return registrations;
}

bool Has(const TransportTraits& traits, const std::string& option) {
  return std::ranges::find(traits.options, option, &TransportOption::name) != traits.options.end();
}

TransportSettings SettingsOf(const EndpointOptions& options, const std::string& name) {
  TransportSettings settings{.bind_host = options.bind_host};
  const auto own = options.transport_options.find(name);
  if (own != options.transport_options.end()) {
    settings.options = own->second;
    std::erase_if(settings.options, [](const auto& option) { return option.second.empty(); });
  }
  return settings;
}

}  // namespace

RegisteredTransport::RegisteredTransport(std::string_view name, Open open, ListPorts list_ports) {
  const bool added =
      Registrations().emplace(name, Registration{.open = open, .list_ports = list_ports}).second;
  HEDDLE_CHECK(added, "two transports are registered as {}", name);
}

Result<std::unique_ptr<Transport>> OpenTransport(std::string_view name,
                                                 const TransportSettings& settings) {
  const TransportTraits* const traits = FindTransport(name);
  const auto found = Registrations().find(name);
  if (traits == nullptr || found == Registrations().end()) {
    return UnimplementedError("this program was built without {}", name);
  }
  for (const auto& [option, value] : settings.options) {
    if (!Has(*traits, option)) {
      return InvalidArgumentError("the transport {} has no option '{}'", name, option);
    }
  }
  return found->second.open(settings);
}

Result<Transports> OpenTransports(const EndpointOptions& options) {
  HEDDLE_RETURN_IF_ERROR(CheckTransportNames(options.open));
  for (const auto& [name, values] : options.transport_options) {
    HEDDLE_RETURN_IF_ERROR(CheckTransportNames(std::span(&name, 1)));
  }
  Transports transports;
  for (const TransportTraits& traits : DeclaredTransports()) {
    if (!options.open.empty() &&
        std::ranges::find(options.open, traits.name) == options.open.end()) {
      transports.absent[traits.name] = "switched off";
      continue;
    }
    const TransportSettings settings = SettingsOf(options, traits.name);
    auto opened = OpenTransport(traits.name, settings);
    if (opened.ok()) {
      transports.open.push_back(*std::move(opened));
      continue;
    }
    if (!traits.optional || opened.status().code() == StatusCode::kInvalidArgument) {
      return opened.status();
    }
    transports.absent[traits.name] = opened.status().message();
    static std::atomic<bool> said = false;
    const bool expected =
        !settings.options.empty() || opened.status().code() == StatusCode::kUnavailable;
    if (expected && !said.exchange(true)) {
      LogInfo("{} is not used: {}", traits.title, opened.status().message());
    }
  }
  return transports;
}

std::vector<std::pair<const TransportTraits*, std::vector<NetworkPort>>> ListNetworkPorts(
    const std::string& bind_host) {
  std::vector<std::pair<const TransportTraits*, std::vector<NetworkPort>>> listed;
  for (const TransportTraits& traits : DeclaredTransports()) {
    const auto found = Registrations().find(traits.name);
    if (found != Registrations().end() && found->second.list_ports != nullptr) {
      listed.emplace_back(&traits, found->second.list_ports(bind_host));
    }
  }
  return listed;
}

}  // namespace heddle::comm
