/// \file
/// A fault as data, so that a history can be printed, replayed and made smaller.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace heddle::elastic {

/// The kinds of faults. "Until healed": until all faults of the history are over.
enum class FaultKind : uint8_t {
  // Processes.
  kKill,
  kKillHost,
  kKillHalf,  ///< Kills half of the workers, chosen by chance.
  kStop,      ///< A worker is stopped for a time, as by SIGSTOP.
  kSlow,      ///< A worker has a third of its speed until healed. In priced histories, a worker
              ///< takes 2 or 5 times as long as profiled, and then its usual time again.
  kJoin,
  kJoinAndDie,  ///< Workers join and die again and again, until the job ends.
  kJoinAbsurd,  ///< A worker joins with a profile that no plan can be found with.
  kJoinUnlike,  ///< A worker joins that reads other data than the job's.
  kDrain,
  kCancelDrain,  ///< A worker is drained, or told to end, and moments later it is to stay.
  kNotice,       ///< All workers are told to end, within moments, as by a machine's shutdown: at
                 ///< once, or as soon as the job is in some phase. Others are started instead.
  kJumpClock,    ///< A worker's clock jumps forwards.
  // The coordinator.
  kRestart,         ///< The coordinator ends, and is started again after a time.
  kCutPower,        ///< As kRestart, and what was written but is not durable is lost.
  kCrashInActions,  ///< As kRestart, between two of the coordinator's next actions.
  kStopCoordinator,
  kDoubleCoordinator,  ///< Another coordinator takes its place, unknown to it; it is stopped for a
                       ///< time, or is not.
  kLoseStore,          ///< The coordinator's machine is lost for ever. After a time another one
                       ///< begins with an empty store: only storage is left.
  kJumpCoordinatorClock,
  kRefusePlans,
  kSlowPlans,
  // Its store.
  kStoreErrors,   ///< All writes fail for a time; some of them arrive all the same.
  kSlowStore,     ///< The next write takes long.
  kCrashInStore,  ///< As kRestart, during the next write, which is lost or not.
  // Networks.
  kBreakStream,
  kCutOff,          ///< A worker is cut off from all other processes.
  kBreakLink,       ///< The link of two workers breaks until healed.
  kOneWayLink,      ///< Nothing that one worker sends to another arrives.
  kCutControl,      ///< One worker, half of them or all lose their messages to and from the
                    ///< coordinator, for a time.
  kCutFromWorkers,  ///< As kCutControl, but only the messages to the coordinator are lost.
  kCutToWorkers,    ///< As kCutControl, but only the messages from the coordinator are lost.
  kSplit,           ///< The network splits into two halves; the coordinator is in one.
  kSlowLinks,       ///< A worker's links carry a fourth of their rate until healed.
  kElsewhere,  ///< The coordinator's name leads half of the workers to another job's, for a time.
  kLate,       ///< The messages between a worker and the coordinator take part of a second longer.
  // Workers' actions and state.
  kPrepareError,
  kOtherProgram,  ///< A worker lowers its plan to another program than the coordinator expects.
  kDamageCheckpoint,
  kChangeMoves,  ///< State that comes to a worker from others' memory is altered, for a time.
  kAlter,        ///< A bit of a worker's state flips.
  kFail,         ///< A worker's own work fails, the next time that it does any.
  kStranger,     ///< A process connects that no coordinator accepts.
  // Operators' requests.
  kEmulate,  ///< An operator limits a worker's speed, memory or link.
  kSuspend,  ///< The machine that all workers run on is to be given up (SimOptions::local).
  kCancel,   ///< The job is cancelled (SimOptions::local).
};
inline constexpr int kFaultKinds = static_cast<int>(FaultKind::kCancel) + 1;

/// A kind's name in the text of a history (TextOf).
const char* NameOf(FaultKind kind);

/// One fault of a history.
struct Fault {
  FaultKind kind = FaultKind::kKill;
  double at = 0;       ///< The time of the fault, in virtual seconds since the history's begin.
  double seconds = 0;  ///< Its duration in virtual seconds, if it ends by itself.
  uint64_t draw = 0;   ///< The seed of its target and of all else that it draws.
  friend bool operator==(const Fault&, const Fault&) = default;
};

}  // namespace heddle::elastic
