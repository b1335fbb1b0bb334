/// \file
/// The actions of the event that is being handled, in the order in which the components add them.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "elastic/control/actions.h"

namespace heddle::elastic {

/// Collects actions. Thread: one caller at a time.
class Outbox {
 public:
  /// `facts` returns the state to store; each Persist() calls it once.
  explicit Outbox(std::function<DurableState()> facts) : facts_(std::move(facts)) {}

  void Add(CoordinatorAction action) { actions_.push_back(std::move(action)); }
  void Log(std::string kind, std::vector<std::pair<std::string, LogEvent::Value>> fields);
  /// Adds a Persist action with the current state: it is durable before any later action is carried
  /// out.
  void Persist();

  /// Adds a Send action. `to` 0 means that the worker is not connected: nothing is sent.
  template <typename Message>
  void Tell(ConnectionId to, const Message& message) {
    if (to != 0) {
      Send action;
      action.connection = to;
      Wrap(message, action.message);
      Add(std::move(action));
    }
  }

  /// Returns the actions and empties the outbox.
  std::vector<CoordinatorAction> Take() { return std::exchange(actions_, {}); }

 private:
  static void Wrap(const wire::Welcome& message, wire::ToWorker& out);
  static void Wrap(const wire::Refused& message, wire::ToWorker& out);
  static void Wrap(const wire::Profile& message, wire::ToWorker& out);
  static void Wrap(const wire::Prepare& message, wire::ToWorker& out);
  static void Wrap(const wire::Stop& message, wire::ToWorker& out);
  static void Wrap(const wire::Halt& message, wire::ToWorker& out);
  static void Wrap(const wire::Start& message, wire::ToWorker& out);
  static void Wrap(const wire::Go& message, wire::ToWorker& out);
  static void Wrap(const wire::Emulation& message, wire::ToWorker& out);
  static void Wrap(const wire::Alive& message, wire::ToWorker& out);
  static void Wrap(const wire::Release& message, wire::ToWorker& out);
  static void Wrap(const wire::Abandon& message, wire::ToWorker& out);
  static void Wrap(const wire::MeasureLinks& message, wire::ToWorker& out);
  static void Wrap(const wire::Save& message, wire::ToWorker& out);
  static void Wrap(const wire::Stay& message, wire::ToWorker& out);

  std::function<DurableState()> facts_;
  std::vector<CoordinatorAction> actions_;
};

}  // namespace heddle::elastic
