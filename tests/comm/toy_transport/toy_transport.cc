// A connection is its handshake's local socket, and nothing else: the least that a transport can
// be.
#include <memory>
#include <utility>

#include "tests/support/local_transport/local_transport.h"

namespace heddle::comm {
namespace {

constexpr const char* kName = "toy";

class ToyConnection final : public testing::LocalConnection {
 public:
  using LocalConnection::LocalConnection;
  ConnectionInfo info() override { return {.transport = kName}; }
};

class ToyTransport final : public testing::LocalTransport {
 public:
  ToyTransport(UniqueFd listener, std::string name)
      : LocalTransport(kName, std::move(listener), std::move(name)) {}

 private:
  std::unique_ptr<Connection> Make(UniqueFd socket) const override {
    return std::make_unique<ToyConnection>(std::move(socket));
  }
};

const RegisteredTransport kRegistered(kName, &testing::LocalTransport::Open<ToyTransport>);

}  // namespace
}  // namespace heddle::comm
