#include "comm/transport.h"

#include <atomic>
#include <utility>

#include <fmt/format.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/log.h"

namespace heddle::comm {

namespace {
constexpr std::string_view kPrefix = "heddle1";
}  // namespace

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
  Setup(const SocketTransport& transport, UniqueFd socket, Lane lane, bool dialled)
      : transport_(transport),
        socket_(std::move(socket)),
        fd_(socket_.get()),
        lane_(lane),
        dialled_(dialled) {}

  int fd() const override { return fd_; }
  Result<std::unique_ptr<Connection>> Advance() override {
    return dialled_ ? transport_.FinishDial(std::move(socket_), lane_)
                    : transport_.FinishAccept(socket_, lane_);
  }

 private:
  const SocketTransport& transport_;
  UniqueFd socket_;
  const int fd_;
  const Lane lane_;
  const bool dialled_;
};

std::unique_ptr<ConnectionSetup> SocketTransport::Begin(
    size_t /*door*/, UniqueFd socket, Lane lane, bool dialled, const Digest& /*key*/) const {
  return std::make_unique<Setup>(*this, std::move(socket), lane, dialled);
}

std::string HostIdentity() {
  const auto boot = ReadFile("/proc/sys/kernel/random/boot_id", 64);
  struct stat network {};
  if (!boot.ok() || ::stat("/proc/self/ns/net", &network) != 0) {
    return "";  // Unknown: nobody is taken for a neighbour.
  }
  return fmt::format("{}.{}", boot->substr(0, boot->find('\n')), network.st_ino);
}

Result<Transports> MakeTransports(const EndpointOptions& options) {
  Transports transports;
  if (options.allow_shm) {
    HEDDLE_ASSIGN_OR_RETURN(auto shm, MakeShmTransport());
    transports.made.push_back(std::move(shm));
  } else {
    transports.absent["shm"] = "switched off";
  }
  if (!options.allow_verbs) {
    transports.absent["verbs"] = "switched off";
  } else if (auto verbs = MakeVerbsTransport(options); verbs.ok()) {
    transports.made.push_back(*std::move(verbs));
  } else {
    transports.absent["verbs"] = verbs.status().message();
    static std::atomic<bool> told = false;
    const bool wanted =
        !options.rdma_devices.empty() || verbs.status().code() == StatusCode::kUnavailable;
    if (wanted && !told.exchange(true)) {
      LogInfo("RDMA is not used: {}", verbs.status().message());
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(auto tcp, MakeTcpTransport(options));
  transports.made.push_back(std::move(tcp));
  return transports;
}

}  // namespace heddle::comm
