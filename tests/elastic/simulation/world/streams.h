/// \file
/// The streams between workers and the coordinator: messages keep their order, may come late or
/// twice, and streams may break.
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

/// The streams of all workers. Thread: one caller.
class Streams {
 public:
  explicit Streams(Cluster& cluster) : cluster_(cluster) {}

  /// Connects a worker to the coordinator, trying again until there is a stream.
  void Connect(const std::string& key);
  /// Ends the worker's stream: the worker notices at once, and so does the coordinator where
  /// `seen_by_coordinator`; otherwise it notices only the silence.
  void Break(const std::string& key, bool seen_by_coordinator);
  /// Breaks all streams of a coordinator whose process ended.
  void BreakAllOf(const CoordinatorProcess& coordinator);
  /// For `time`, messages in the chosen directions do not arrive. `breaks`: the end that waits for
  /// a sign of life in vain ends the stream.
  void Block(
      SimWorker& worker, Duration time, bool to_coordinator, bool from_coordinator, bool breaks);
  /// One end of a worker's stream does not answer any more: after the time limit of keepalives the
  /// other end ends the stream, unless the first one answers again by then (`is_back`).
  void BreakUnless(const std::string& key, std::function<bool()> is_back);
  /// Calls BreakUnless for all streams of a coordinator that stands still.
  void AwaitAnswers(const CoordinatorProcess& coordinator);
  /// Whether the worker's messages go to a coordinator that does not lead.
  bool LeadsElsewhere(const SimWorker& worker) const;
  void ToCoordinator(SimWorker& worker, const wire::FromWorker& message);
  void ToWorker(ConnectionId connection, const wire::ToWorker& message);
  /// The coordinator closes a stream, after the messages that it sent before.
  void Close(ConnectionId connection);

 private:
  /// Another job's coordinator answers the worker, and the stream ends.
  void AskAnother(const std::string& key);
  struct Stream {
    std::string worker;  ///< The worker's key.
    CoordinatorProcess* coordinator = nullptr;
  };

  /// The time at which a message sent now arrives; Copies returns how often it arrives.
  Time Arrival(const SimControl& control, SimDirection& direction);
  int Copies();

  Cluster& cluster_;
  ConnectionId next_connection_ = 1;
  std::map<ConnectionId, Stream> streams_;  ///< The streams as coordinators see them.
};

}  // namespace heddle::elastic
