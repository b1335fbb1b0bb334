/// \file
/// A cluster of real etcd processes, on free ports, each with a data folder of its own.
#pragma once

#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/system/file.h"
#include "base/system/unique_fd.h"
#include "elastic/launcher/launcher.h"
#include "elastic/store/etcd/etcd_client.h"
#include "elastic/store/etcd/etcd_election.h"
#include "elastic/store/etcd/etcd_keys.h"

namespace heddle::elastic {

/// A cluster of etcd processes, which the destructor ends. Thread: one caller at a time.
class EtcdCluster {
 public:
  static constexpr Duration kPatience = std::chrono::seconds(60);

  explicit EtcdCluster(size_t members, bool tls = false) : tls_(tls) {
    if (tls_) {
      MakeCertificates();
    }
    launcher_ = *MakeLocalLauncher({});
    const std::vector<int> ports = FreePorts(2 * members);
    for (size_t i = 0; i < members; ++i) {
      members_.push_back({.client = fmt::format("127.0.0.1:{}", ports[2 * i]),
                          .peer = fmt::format("http://127.0.0.1:{}", ports[2 * i + 1])});
    }
    for (size_t i = 0; i < members; ++i) {
      Start(i);
    }
    AwaitQuorum();
  }

  size_t size() const { return members_.size(); }
  const std::string& endpoint(size_t member) const { return members_[member].client; }
  std::string file(const std::string& name) const { return folder_.path() + "/" + name; }

  /// The address of a store in this cluster whose keys begin with `prefix`.
  EtcdAddress Address(const std::string& prefix, int lease_seconds = 60) const {
    EtcdAddress address;
    for (const Member& member : members_) {
      address.endpoints.push_back(member.client);
    }
    address.prefix = prefix;
    address.lease = std::chrono::seconds(lease_seconds);
    if (tls_) {
      address.ca_file = file("ca.pem");
      address.certificate_file = file("client.pem");
      address.key_file = file("client.key");
    }
    return address;
  }

  void Start(size_t i) {
    Member& member = members_[i];
    std::string all;
    for (size_t other = 0; other < members_.size(); ++other) {
      all += fmt::format("{}m{}={}", other == 0 ? "" : ",", other, members_[other].peer);
    }
    const std::string client = (tls_ ? "https://" : "http://") + member.client;
    std::vector<std::string> words = {"/usr/bin/etcd",
                                      "--name",
                                      fmt::format("m{}", i),
                                      "--data-dir",
                                      file(fmt::format("data{}", i)),
                                      "--listen-client-urls",
                                      client,
                                      "--advertise-client-urls",
                                      client,
                                      "--listen-peer-urls",
                                      member.peer,
                                      "--initial-advertise-peer-urls",
                                      member.peer,
                                      "--initial-cluster",
                                      all,
                                      "--logger",
                                      "zap",
                                      "--log-level",
                                      "error"};
    if (tls_) {
      for (const auto& [option, name] :
           {std::pair("--cert-file", "server.pem"), std::pair("--key-file", "server.key"),
            std::pair("--trusted-ca-file", "ca.pem")}) {
        words.emplace_back(option);
        words.push_back(file(name));
      }
      words.emplace_back("--client-cert-auth");
    }
    const auto pid = launcher_->Launch({.name = fmt::format("m{}", i),
                                        .argv = words,
                                        .log_path = file(fmt::format("log{}", i)),
                                        .environment = {}});
    ASSERT_TRUE(pid.ok()) << pid.status().ToString();
    member.pid = *pid;
  }
  void Signal(size_t i, int signal) {
    const Status sent = launcher_->Signal(members_[i].pid, signal);
    EXPECT_TRUE(sent.ok()) << sent.ToString();
  }

  void AwaitQuorum() const {
    const auto client = EtcdClient::Open(Address("/quorum"));
    ASSERT_TRUE(client.ok()) << client.status().ToString();
    etcdserverpb::TxnRequest read;
    Read(read, "/quorum");
    Status status;
    for (const Deadline deadline = After(kPatience); Now() < deadline;) {
      status = (*client)->Txn(read, After(std::chrono::seconds(3))).status();
      if (status.ok()) {
        return;
      }
    }
    FAIL() << status.ToString() << ": " << *ReadFile(file("log0"), 1 << 20);
  }

 private:
  struct Member {
    std::string client;
    std::string peer;
    int64_t pid = 0;
  };

  static std::vector<int> FreePorts(size_t count) {
    std::vector<UniqueFd> held;  // All are held at once, so that the ports differ.
    std::vector<int> ports;
    for (size_t i = 0; i < count; ++i) {
      held.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      socklen_t length = sizeof(address);
      auto* const raw = reinterpret_cast<sockaddr*>(&address);
      EXPECT_EQ(::bind(held.back().get(), raw, length), 0);
      EXPECT_EQ(::getsockname(held.back().get(), raw, &length), 0);
      ports.push_back(ntohs(address.sin_port));
    }
    return ports;
  }

  // Makes an authority, and its certificates for 127.0.0.1 and for a client.
  void MakeCertificates() const {
    const std::string make = fmt::format(
        "cd {} && exec 2> openssl.log"
        " && openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -subj /CN=ca "
        "-days 2"
        " && openssl req -x509 -newkey rsa:2048 -nodes -keyout other.key -out other.pem -subj "
        "/CN=other -days 2"
        " && printf 'subjectAltName=IP:127.0.0.1\\nextendedKeyUsage=serverAuth,clientAuth\\n' > "
        "names"
        " && for who in server client; do"
        " openssl req -newkey rsa:2048 -nodes -keyout $who.key -out $who.csr -subj /CN=$who"
        " && openssl x509 -req -in $who.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2"
        " -extfile names -out $who.pem || exit 1; done",
        folder_.path());
    ASSERT_EQ(std::system(make.c_str()), 0) << *ReadFile(file("openssl.log"), 1 << 20);
  }

  const TemporaryFolder folder_;
  const bool tls_;
  std::vector<Member> members_;
  std::unique_ptr<Launcher> launcher_;
};

/// Stands for election at `own_address` until it leads, and returns the store; null, and the test
/// fails: it did not lead within EtcdCluster::kPatience.
inline std::unique_ptr<StateStore> Lead(const EtcdAddress& address,
                                        const std::string& own_address = "127.0.0.1:1") {
  const auto election = EtcdElection::Open(address);
  EXPECT_TRUE(election.ok()) << election.status().ToString();
  Status status;
  for (const Deadline deadline = After(EtcdCluster::kPatience); Now() < deadline;) {
    auto turn = (*election)->Try(own_address);
    if (turn.ok() && turn->store != nullptr) {
      return std::move(turn->store);
    }
    status = turn.status();
  }
  ADD_FAILURE() << "another one leads: " << status.ToString();
  return nullptr;
}

}  // namespace heddle::elastic
