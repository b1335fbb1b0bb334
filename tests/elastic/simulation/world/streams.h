/// \file
/// The ways between workers and the coordinator: streams that keep their order, come late, break,
/// or say something twice.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "elastic/control/connection.h"
#include "elastic/protocol/protocol.pb.h"
#include "tests/elastic/simulation/world/worker.h"

namespace heddle::elastic {

class Cluster;
class CoordinatorProcess;

/// Thread: one caller.
class Streams {
 public:
  explicit Streams(Cluster& cluster) : cluster_(cluster) {}

  /// Tries until there is a stream.
  void Connect(const std::string& key);
  /// The stream ends: the worker notices at once, the coordinator too or only by its silence.
  void Break(const std::string& key, bool seen_by_coordinator);
  /// A coordinator's end of all of them is gone.
  void BreakAllOf(const CoordinatorProcess& coordinator);
  /// For a time, what is said in these directions does not come. `breaks`: whoever waits for a sign
  /// of life in vain ends the stream.
  void Block(
      SimWorker& worker, Duration time, bool to_coordinator, bool from_coordinator, bool breaks);
  /// One end does not answer any more: after the bound of keepalives the other one ends the stream,
  /// unless that answers again (`is_back`).
  void BreakUnless(const std::string& key, std::function<bool()> is_back);
  /// BreakUnless for all of a coordinator that stands still.
  void AwaitAnswers(const CoordinatorProcess& coordinator);
  /// Whether what the worker says comes to a coordinator that does not lead.
  bool LeadsElsewhere(const SimWorker& worker) const;
  void ToCoordinator(SimWorker& worker, const wire::FromWorker& message);
  void ToWorker(ConnectionId connection, const wire::ToWorker& message);
  /// By the coordinator, after what was sent before.
  void Close(ConnectionId connection);

 private:
  /// Another job's coordinator answers, and the stream ends.
  void AskAnother(const std::string& key);
  struct Stream {
    std::string worker;  ///< Its key.
    CoordinatorProcess* coordinator = nullptr;
  };

  /// When what is said now arrives, and how often.
  Time Arrival(const SimControl& control, SimDirection& direction);
  int Copies();

  Cluster& cluster_;
  ConnectionId next_connection_ = 1;
  std::map<ConnectionId, Stream> streams_;  ///< As coordinators see them.
};

}  // namespace heddle::elastic
