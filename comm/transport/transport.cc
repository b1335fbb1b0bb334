#include "comm/transport/transport.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <sys/stat.h>

#include "base/system/file.h"

namespace heddle::comm {

namespace {
constexpr std::string_view kPrefix = "heddle1";
}  // namespace

Transport::Transport(std::string_view name) : traits_(*FindTransport(name)) {}

bool PassesDescriptors(const AddressParts& parts) {
  return std::ranges::any_of(DeclaredTransports(), [&](const TransportTraits& traits) {
    return traits.passes_descriptors && parts.contains(traits.name);
  });
}

std::string FormatAddress(const AddressParts& parts) {
  std::string text(kPrefix);
  for (const auto& [name, value] : parts) {
    text += fmt::format(";{}={}", name, value);
  }
  return text;
}

Result<AddressParts> ParseAddress(std::string_view text) {
  AddressParts parts;
  std::string_view rest = text;
  if (!rest.starts_with(kPrefix)) {
    return InvalidArgumentError("'{}' is not an endpoint's address", text.substr(0, 64));
  }
  rest.remove_prefix(kPrefix.size());
  while (!rest.empty()) {
    const size_t end = rest.find(';', 1);
    const std::string_view part = rest.substr(1, end == std::string_view::npos ? end : end - 1);
    const size_t equals = part.find('=');
    if (rest.front() != ';' || equals == std::string_view::npos) {
      return InvalidArgumentError("'{}' is not an endpoint's address", text.substr(0, 64));
    }
    parts.emplace(part.substr(0, equals), part.substr(equals + 1));
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end);
  }
  return parts;
}

class SocketTransport::Setup final : public ConnectionSetup {
 public:
  Setup(const SocketTransport& transport, UniqueFd socket, TrafficClass traffic_class, bool dialled)
      : transport_(transport),
        socket_(std::move(socket)),
        fd_(socket_.get()),
        traffic_class_(traffic_class),
        dialled_(dialled) {}

  int fd() const override { return fd_; }
  Result<std::unique_ptr<Connection>> Advance() override {
    return dialled_ ? transport_.FinishDial(std::move(socket_), traffic_class_)
                    : transport_.FinishAccept(socket_, traffic_class_);
  }

 private:
  const SocketTransport& transport_;
  UniqueFd socket_;
  const int fd_;
  const TrafficClass traffic_class_;
  const bool dialled_;
};

std::unique_ptr<ConnectionSetup> SocketTransport::Begin(UniqueFd socket,
                                                        const SetupOptions& options) const {
  return std::make_unique<Setup>(*this, std::move(socket), options.traffic_class, options.dialled);
}

std::string HostIdentity() {
  const auto boot = ReadFile("/proc/sys/kernel/random/boot_id", 64);
  struct stat network {};
  if (!boot.ok() || ::stat("/proc/self/ns/net", &network) != 0) {
    return "";  // Unknown: no peer counts as on this host.
  }
  return fmt::format("{}.{}", boot->substr(0, boot->find('\n')), network.st_ino);
}

}  // namespace heddle::comm
