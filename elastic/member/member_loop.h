/// \file
/// The thread that runs a Member: a queue of events, its timer, and a host that carries out the
/// actions.
#pragma once

#include <functional>
#include <memory>

#include "elastic/member/member.h"

namespace heddle::elastic {

/// Carries out actions. Thread: called from the loop's thread; must not block.
class MemberHost {
 public:
  virtual ~MemberHost() = default;
  virtual void Perform(const MemberAction& action) = 0;
  /// What the heartbeat that is due tells of the trainer.
  virtual MemberTicked Tick() const { return {}; }
};

/// Thread: any, but not from inside Perform's destructor chain: Stop joins the loop.
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
