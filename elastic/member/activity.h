/// \file
/// The stage of this worker's part in a generation, and the replies that it owes.
///
///     Idle, Halted, Stopped ─ Start ─▶ Moving ─▶ Ready ─ Go ─▶ Training ─▶ Stopped, Finished
///
/// Halt ends every stage. The worker replies to it once no run and no move is under way.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "elastic/member/held_state.h"

namespace heddle::elastic {

/// The state machine of a worker's stages. Thread: one caller at a time. A copy is an independent
/// machine.
class Activity {
 public:
  wire::Standing standing() const;
  /// The newest generation that this worker was told to start; 0: none.
  int64_t generation() const { return start_.generation(); }
  /// The generation of the newest Halt. Generations below it have ended.
  int64_t fence() const { return fence_; }
  bool IsTraining() const { return In<Training>() != nullptr; }
  /// True if this worker is rank 0 of the generation that trains, which reports each step.
  bool Leads() const { return IsTraining() && In<Training>()->rank == 0; }

  /// Requests the stop of the generation's run, or resends the reply if that run has ended.
  void Stop(const wire::Stop& message, MemberOutbox& out) const;
  /// Saves the state if the generation's run has stopped after the message's step; otherwise does
  /// nothing.
  void Save(const wire::Save& message, MemberOutbox& out) const;
  /// Aborts runs and moves of earlier generations, and replies once none is under way. Resends the
  /// reply to a repeated Halt.
  void Halt(const wire::Halt& message,
            const HeldState& held,
            const Reports& reports,
            MemberOutbox& out);
  /// True if the command is new and the caller has to move state; otherwise resends the reply, if
  /// there is one.
  bool Start(const wire::Start& message, MemberOutbox& out);
  /// Replies to the Start, or to a Halt that came meanwhile.
  void EndMove(const StateMoved& event, HeldState& held, const Reports& reports, MemberOutbox& out);
  /// True if the state for `generation` is moved and its Go has not come.
  bool AwaitsGo(int64_t generation) const;
  /// Begins the run of the started generation. `rank`: this worker's in it.
  void Train(int rank, MemberOutbox& out);
  /// Ends this worker's part, for one that has no rank in the generation that began.
  void Rest() { stage_ = Idle(); }
  /// Reports how the run ended, or replies to a Halt that came meanwhile.
  void EndRun(const RunEnded& event, HeldState& held, const Reports& reports, MemberOutbox& out);
  /// Reports a lost peer of the current generation, unless one was reported since the last Halt.
  void AccusePeer(const PeerSeenLost& event, MemberOutbox& out);

  /// Resends the replies and reports that the coordinator may not have received.
  void Resend(MemberOutbox& out) const;

 private:
  struct Idle {  ///< Holds no state and has no part in a generation.
    static constexpr wire::Standing kStanding = wire::STANDING_IDLE;
    std::optional<wire::Halted> answer;
  };
  struct Moving {
    static constexpr wire::Standing kStanding = wire::STANDING_MOVING;
  };
  struct Ready {
    static constexpr wire::Standing kStanding = wire::STANDING_READY;
  };
  struct Training {
    static constexpr wire::Standing kStanding = wire::STANDING_TRAINING;
    int rank;
  };
  struct Stopped {
    static constexpr wire::Standing kStanding = wire::STANDING_STOPPED;
    wire::Stopped answer;
  };
  struct Halted {  ///< Holds state; a run or a move was aborted or failed, or a Halt came.
    static constexpr wire::Standing kStanding = wire::STANDING_HALTED;
    std::optional<wire::Halted> answer;
  };
  struct Finished {
    static constexpr wire::Standing kStanding = wire::STANDING_FINISHED;
    wire::Finished answer;
  };

  template <typename T>
  const T* In() const {
    return std::get_if<T>(&stage_);
  }
  /// The reply to the Halt that ended the last stage; null if it ended otherwise.
  const wire::Halted* halted() const;
  void AnswerHalt(const HeldState& held, const Reports& reports, MemberOutbox& out);
  void Accuse(const std::string& peer, const std::string& reason, MemberOutbox& out);

  std::variant<Idle, Moving, Ready, Training, Stopped, Halted, Finished> stage_;
  wire::Start start_;
  std::optional<wire::Ready> ready_;  ///< The reply to start_, until a Halt.
  int64_t fence_ = 0;
  /// Halt.known_step of a Halt whose reply waits for the end of a run or a move.
  std::optional<int64_t> halt_owed_;
  std::optional<wire::PeerLost> peer_lost_;  ///< The first report since the last Halt.
};

}  // namespace heddle::elastic
