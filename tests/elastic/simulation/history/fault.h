/// \file
/// A fault as data, so that a history can be told, replayed and made smaller.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace heddle::elastic {

enum class FaultKind : uint8_t {
  // Processes.
  kKill,
  kKillHost,
  kKillHalf,  ///< Of the workers, by chance.
  kStop,      ///< SIGSTOP for a time.
  kSlow,      ///< A third of the speed, until all is mended; where steps are priced another part of
              ///< it, or, of a slow one, as its profile says.
  kJoin,
  kJoinAndDie,  ///< Again and again, until the job ends.
  kJoinAbsurd,  ///< With a profile that no plan can be made with.
  kJoinUnlike,  ///< It reads other data than the job's.
  kDrain,
  kCancelDrain,  ///< One is drained, or told to end, and moments later it is to stay.
  kNotice,       ///< All are told to end, within moments, as by a machine's shutdown; at once, or
                 ///< as soon as the job is in some phase. Who started them starts others.
  kJumpClock,    ///< A worker's, forwards.
  // The coordinator.
  kRestart,         ///< It ends, and is started again after a time.
  kCutPower,        ///< Likewise, with what was written there and is not durable.
  kCrashInActions,  ///< Likewise, between two of its next actions.
  kStopCoordinator,
  kDoubleCoordinator,  ///< Another one takes its place, of which it does not know; it is stopped
                       ///< for a time, or is not.
  kLoseStore,          ///< Its machine goes away for ever. After a time another one begins with an
                       ///< empty store: only storage is left.
  kJumpCoordinatorClock,
  kRefusePlans,
  kSlowPlans,
  // Its store.
  kStoreErrors,   ///< Each write fails for a time; some of those arrive.
  kSlowStore,     ///< The next write takes a time.
  kCrashInStore,  ///< It ends during its next write, which is lost or not; then as kRestart.
  // Networks.
  kBreakStream,
  kCutOff,      ///< A worker from everybody.
  kBreakLink,   ///< Of two workers, until all is mended.
  kOneWayLink,  ///< What one worker says to another does not come.
  kCutControl,  ///< Of one worker, half of them or all, for a time: the way to the coordinator and
                ///< back,
  kCutFromWorkers,  ///< only what they say,
  kCutToWorkers,    ///< only what they are told.
  kSplit,           ///< Two halves; the coordinator is in one.
  kSlowLinks,       ///< A worker's carry a fourth, until all is mended.
  kElsewhere,  ///< The coordinator's name leads half of the workers to another job's, for a time.
  kLate,       ///< All that a worker and the coordinator say to each other, by part of a second.
  // What is asked of workers.
  kPrepareError,
  kOtherProgram,  ///< Than the coordinator expects.
  kDamageCheckpoint,
  kChangeMoves,  ///< What comes to a worker from others' memory is changed on its way, for a time.
  kAlter,        ///< A bit of a worker's state flips.
  kFail,         ///< A worker's own work fails, the next time that it does any.
  kStranger,     ///< A process comes that no coordinator takes.
  // What people ask for.
  kEmulate,  ///< Other limits of a worker's speed, memory or link.
  kSuspend,  ///< The machine that all workers run on is to be given up (SimOptions::local).
  kCancel,   ///< The job is to end (SimOptions::local).
};
inline constexpr int kFaultKinds = static_cast<int>(FaultKind::kCancel) + 1;

/// As in the text of a history.
const char* NameOf(FaultKind kind);

struct Fault {
  FaultKind kind = FaultKind::kKill;
  double at = 0;       ///< Seconds since the begin.
  double seconds = 0;  ///< How long it lasts, for those that end by themselves.
  uint64_t draw = 0;   ///< Decides whom it meets, and whatever else it draws.
  friend bool operator==(const Fault&, const Fault&) = default;
};

}  // namespace heddle::elastic
