/// \file
/// The thread that runs a Member: a queue of events, a timer, and a host that performs the actions.
#pragma once

#include <functional>
#include <memory>

#include "elastic/member/member.h"

namespace heddle::elastic {

/// Performs actions. Thread: called from the loop's thread; must not block.
class MemberHost {
 public:
  virtual ~MemberHost() = default;
  virtual void Perform(const MemberAction& action) = 0;
  /// Describes the trainer for the heartbeat that is due.
  virtual MemberTicked Tick() const { return {}; }
};

/// Runs a Member. Thread: any; Stop and the destructor join the loop's thread and must not be
/// called from Perform.
class MemberLoop {
 public:
  MemberLoop(Member member, MemberHost& host);
  ~MemberLoop();  ///< Stop().
  MemberLoop(const MemberLoop&) = delete;
  MemberLoop& operator=(const MemberLoop&) = delete;

  /// Queues an event; never blocks. Events after Stop are dropped.
  void Post(MemberEvent event);
  /// Ends the loop's thread; idempotent.
  void Stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::elastic
