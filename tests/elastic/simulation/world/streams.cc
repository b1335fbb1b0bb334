#include "tests/elastic/simulation/world/streams.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "tests/elastic/simulation/cluster.h"

namespace heddle::elastic {
namespace {

// So long after the last sign of life, at least and at most, a stream is ended: a keepalive goes
// out every 2 s and is waited for as long.
constexpr double kKeepaliveLeastMs = 2000;
constexpr double kKeepaliveMostMs = 4000;
// What is late, for packets were lost, takes so long at most.
constexpr double kLatestMs = 400;

wire::FromWorker Disguised(Strange strange, wire::FromWorker message) {
  wire::Hello& hello = *message.mutable_hello();
  switch (strange) {
    case Strange::kVersion:
      hello.set_protocol_version(hello.protocol_version() + 1);
      break;
    case Strange::kName:
      hello.set_name("no name!");
      break;
    case Strange::kDomain:
      hello.set_failure_domain("no domain!");
      break;
    case Strange::kHost:
      hello.set_host(std::string(1000, 'h'));
      break;
    case Strange::kIncarnation:
      hello.set_incarnation("short");
      break;
    case Strange::kNot:
      break;
  }
  return message;
}

// As the coordinator's shell does it.
wire::FromWorker Checked(wire::FromWorker message) {
  if (message.has_profiled() && message.profiled().profile_json() == kAbsurdProfile) {
    message.mutable_profiled()->clear_profile_json();
    message.mutable_profiled()->set_error("a rate is no number");
  }
  return message;
}

}  // namespace

void Streams::Connect(const std::string& key) {
  SimWorker& worker = cluster_.fleet.at(key);
  SimControl& control = worker.control;
  control.reconnecting = false;
  if (control.connection != 0) {
    return;
  }
  const Time now = cluster_.world.now();
  if (now < control.elsewhere_until && !cluster_.fleet.Unreachable(worker)) {
    return AskAnother(key);
  }
  CoordinatorProcess* const coordinator = cluster_.coordinator.Find();
  if (coordinator == nullptr || cluster_.fleet.Unreachable(worker) ||
      now < control.blocked_until()) {
    control.reconnecting = true;
    cluster_.fleet.After(key, 50, 500, [this](SimWorker& w) { Connect(w.key); });
    return;
  }
  control.connection = next_connection_++;
  control.connected_at = now;
  streams_[control.connection] = {key, coordinator};
  control.to_coordinator.last_arrival = control.from_coordinator.last_arrival = now;
  cluster_.members.Tell(worker, StreamUp());
}

// A whole one, which has a job, and workers of the same names.
void Streams::AskAnother(const std::string& key) {
  SimWorker& worker = cluster_.fleet.at(key);
  World& world = cluster_.world;
  Coordinator another;
  Submitted submitted;
  submitted.job.id = "another";
  another.Handle(submitted, world.now());
  worker.control.asks_another = true;
  cluster_.members.Tell(worker, StreamUp());
  worker.control.asks_another = false;
  const std::optional<wire::Hello> hello = std::exchange(worker.control.another_hello, {});
  if (!hello) {
    return;  // It has ended.
  }
  Received said;
  said.connection = 1;
  *said.message.mutable_hello() = *hello;
  std::vector<wire::ToWorker> answers;
  for (const CoordinatorAction& action : another.Handle(said, world.now())) {
    if (const auto* send = std::get_if<Send>(&action)) {
      answers.push_back(send->message);
    }
  }
  world.Count(hello->job_id().empty() ? "joins elsewhere" : "refused elsewhere");
  worker.control.reconnecting = true;
  cluster_.fleet.After(key, 1, 5, [this, answers, joins = hello->job_id().empty()](SimWorker& w) {
    for (const wire::ToWorker& answer : answers) {
      if (w.runs() && !joins) {
        cluster_.members.Tell(w, FromCoordinator{answer});
      }
    }
    if (w.runs()) {
      cluster_.members.Tell(w, StreamDown{"elsewhere"});
      cluster_.fleet.After(w.key, 50, 500, [this](SimWorker& again) { Connect(again.key); });
    }
  });
}

void Streams::Break(const std::string& key, bool seen_by_coordinator) {
  SimWorker& worker = cluster_.fleet.at(key);
  const ConnectionId connection = std::exchange(worker.control.connection, 0);
  if (connection == 0) {
    return;
  }
  if (const auto stream = streams_.find(connection);
      seen_by_coordinator && stream != streams_.end()) {
    cluster_.world.After(0, 5, [this, connection, &coordinator = *stream->second.coordinator] {
      if (streams_.erase(connection) > 0) {
        coordinator.Tell(Disconnected{connection});
      }
    });
  }
  if (!worker.runs()) {
    return;
  }
  cluster_.fleet.After(key, 0, 5, [this](SimWorker& w) {
    cluster_.members.Tell(w, StreamDown{"broken"});
    if (!w.control.reconnecting && !w.exited) {
      w.control.reconnecting = true;
      cluster_.fleet.After(w.key, 25, 50, [this](SimWorker& again) { Connect(again.key); });
    }
  });
}

void Streams::BreakAllOf(const CoordinatorProcess& coordinator) {
  for (const SimWorker* worker : cluster_.fleet.Running()) {
    const auto stream = streams_.find(worker->control.connection);
    if (stream != streams_.end() && stream->second.coordinator == &coordinator) {
      Break(worker->key, false);
    }
  }
  std::erase_if(streams_,
                [&](const auto& stream) { return stream.second.coordinator == &coordinator; });
}

void Streams::AwaitAnswers(const CoordinatorProcess& coordinator) {
  for (const SimWorker* worker : cluster_.fleet.Running()) {
    const auto stream = streams_.find(worker->control.connection);
    if (stream != streams_.end() && stream->second.coordinator == &coordinator) {
      BreakUnless(worker->key, [&coordinator] { return coordinator.answers(); });
    }
  }
}

bool Streams::LeadsElsewhere(const SimWorker& worker) const {
  const auto stream = streams_.find(worker.control.connection);
  return stream != streams_.end() && stream->second.coordinator != cluster_.coordinator.leader();
}

void Streams::Block(
    SimWorker& worker, Duration time, bool to_coordinator, bool from_coordinator, bool breaks) {
  const Time until = cluster_.world.now() + time;
  SimControl& control = worker.control;
  for (SimDirection* direction : {to_coordinator ? &control.to_coordinator : nullptr,
                                  from_coordinator ? &control.from_coordinator : nullptr}) {
    if (direction != nullptr) {
      direction->blocked_until = std::max(direction->blocked_until, until);
    }
  }
  if (breaks) {
    BreakUnless(worker.key, [this, key = worker.key] {
      return cluster_.world.now() >= cluster_.fleet.at(key).control.blocked_until();
    });
  }
}

void Streams::BreakUnless(const std::string& key, std::function<bool()> is_back) {
  World& world = cluster_.world;
  const bool seen = world.random().Below(2) == 0;
  const ConnectionId connection = cluster_.fleet.at(key).control.connection;
  world.After(kKeepaliveLeastMs, kKeepaliveMostMs,
              [this, key, seen, connection, is_back = std::move(is_back)] {
                if (cluster_.fleet.at(key).control.connection == connection && !is_back()) {
                  Break(key, seen);
                }
              });
}

Time Streams::Arrival(const SimControl& control, SimDirection& direction) {
  World& world = cluster_.world;
  const bool late = world.now() < control.late_until;
  const Time usual = late ? world.Within(100, kLatestMs) : world.Within(0.1, 3.1);
  direction.last_arrival =
      std::max({direction.last_arrival, direction.blocked_until, usual}) + Duration(1);
  return direction.last_arrival;
}

int Streams::Copies() {
  return cluster_.world.Happens(50) ? 2 : 1;
}

void Streams::ToCoordinator(SimWorker& worker, const wire::FromWorker& message) {
  World& world = cluster_.world;
  SimControl& control = worker.control;
  if (world.traces() && !message.has_heartbeat()) {
    world.Trace(fmt::format("from {}: {}", worker.key, message.ShortDebugString()));
  }
  if (control.asks_another && message.has_hello()) {
    control.another_hello = message.hello();
    return;
  }
  if (control.connection == 0 || cluster_.fleet.Unreachable(worker)) {
    return;
  }
  const int copies = message.has_hello() ? 1 : Copies();
  for (int copy = 0; copy < copies; ++copy) {
    world.At(Arrival(control, control.to_coordinator),
             [this, connection = control.connection,
              message = message.has_hello() ? Disguised(worker.strange, message) : message] {
               const auto stream = streams_.find(connection);
               if (stream == streams_.end()) {
                 return;
               }
               const std::string key = stream->second.worker;
               stream->second.coordinator->Tell(Received{connection, Checked(message)});
               if (message.has_halted()) {
                 cluster_.faults.NoteHalted(key);
               }
             });
  }
}

void Streams::ToWorker(ConnectionId connection, const wire::ToWorker& message) {
  World& world = cluster_.world;
  const auto stream = streams_.find(connection);
  if (world.traces() && !message.has_alive()) {
    world.Trace(fmt::format("to {}: {}",
                            stream == streams_.end() ? "nobody" : stream->second.worker,
                            message.ShortDebugString()));
  }
  if (stream == streams_.end()) {
    return;
  }
  SimWorker& worker = cluster_.fleet.at(stream->second.worker);
  if (cluster_.fleet.Unreachable(worker)) {
    return;
  }
  const int copies = Copies();
  for (int copy = 0; copy < copies; ++copy) {
    cluster_.fleet.At(worker.key, Arrival(worker.control, worker.control.from_coordinator),
                      [this, connection, message](SimWorker& w) {
                        if (w.control.connection == connection && !cluster_.fleet.Unreachable(w)) {
                          cluster_.members.Tell(w, FromCoordinator{message});
                        }
                      });
  }
}

void Streams::Close(ConnectionId connection) {
  const auto stream = streams_.find(connection);
  if (stream == streams_.end()) {
    return;
  }
  const std::string key = stream->second.worker;
  streams_.erase(stream);
  const Time after = cluster_.fleet.at(key).control.from_coordinator.last_arrival + Duration(1);
  cluster_.fleet.At(key, after, [this, connection](SimWorker& w) {
    if (w.control.connection == connection && !cluster_.fleet.Unreachable(w)) {
      Break(w.key, false);
    }
  });
}

}  // namespace heddle::elastic
