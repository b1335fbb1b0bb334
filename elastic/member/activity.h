/// \file
/// What this worker is doing, as the stage that it is in: each has what it needs and no more.
///
///     Idle, Halted, Stopped ─ Start ─▶ Moving ─▶ Ready ─ Go ─▶ Training ─▶ Stopped, Finished
///
/// Halt ends each of them; it is answered once nothing runs or moves here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "elastic/member/held_state.h"

namespace heddle::elastic {

/// Thread: one caller at a time. A copy is an independent machine.
class Activity {
 public:
  wire::Standing standing() const;
  /// The newest that this worker was told to start; 0: none.
  int64_t generation() const { return start_.generation(); }
  /// Generations below it are over.
  int64_t fence() const { return fence_; }
  bool IsTraining() const { return In<Training>() != nullptr; }
  /// It is the one of the generation that reports each step.
  bool Leads() const { return IsTraining() && In<Training>()->rank == 0; }

  void Stop(const wire::Stop& message, MemberOutbox& out) const;
  /// Only what has stopped is at rest.
  void Save(const wire::Save& message, MemberOutbox& out) const;
  void Halt(const wire::Halt& message,
            const HeldState& held,
            const Reports& reports,
            MemberOutbox& out);
  /// Whether it is new, so that state is to be moved; otherwise its answer is said again.
  bool Start(const wire::Start& message, MemberOutbox& out);
  void EndMove(const StateMoved& event, HeldState& held, const Reports& reports, MemberOutbox& out);
  bool AwaitsGo(int64_t generation) const;
  /// `rank`: in the generation that began.
  void Train(int rank, MemberOutbox& out);
  /// This worker has no part in the generation that began.
  void Rest() { stage_ = Idle(); }
  void EndRun(const RunEnded& event, HeldState& held, const Reports& reports, MemberOutbox& out);
  void AccusePeer(const PeerSeenLost& event, MemberOutbox& out);

  /// What the coordinator may not have heard.
  void SayAgain(MemberOutbox& out) const;

 private:
  struct Idle {  ///< Holds nothing.
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
  struct Halted {  ///< Its step or its move was cut.
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
  /// Null: no Halt is answered since.
  const wire::Halted* halted() const;
  void AnswerHalt(const HeldState& held, const Reports& reports, MemberOutbox& out);
  void Accuse(const std::string& peer, const std::string& reason, MemberOutbox& out);

  std::variant<Idle, Moving, Ready, Training, Stopped, Halted, Finished> stage_;
  wire::Start start_;
  std::optional<wire::Ready> ready_;  ///< The answer to start_, until a Halt.
  int64_t fence_ = 0;
  std::optional<int64_t> halt_owed_;         ///< Halt.known_step, while the run or the move ends.
  std::optional<wire::PeerLost> peer_lost_;  ///< The first since the last Halt.
};

}  // namespace heddle::elastic
