/// \file
/// The communicator over MPI, for groups that never change: the ranks of one `mpirun` or
/// `srun --mpi=…`, on fabrics that only an MPI drives, or beside other MPI code.
///
/// It is fenced off from the elastic path: no Endpoint offers it, no plan names it, and it cannot
/// form a new group after a loss. Open MPI 4.1 has no ULFM (the fault tolerance of MPI 5): when one
/// process dies, mpirun ends all of them; where that is switched off (--enable-recovery), and for a
/// process that is stopped, the others' calls never return. The ranks of one MPI job are thus one
/// domain of failure. What this backend adds is a bound: nothing here waits for ever, a silent
/// peer becomes a named error, and the process can then end itself.
///
/// What MPI carries between machines is not encrypted by Heddle (docs/operate/security.md).
///
/// Only the bytes are MPI's. Each pair of ranks has a stream of bounded pieces in buffers of this
/// backend's own, with the messages, matching, priorities and collectives of every other transport
/// on top (comm/message/channel.h); so results, and the bits of ReduceTree, are theirs too. MPI
/// never sees a caller's buffer, because a send that MPI has begun cannot be cancelled: a buffer
/// handed to it could not be given back at a deadline or an Abort.
///
/// One thread of this library makes all MPI calls, MPI_Init_thread and MPI_Finalize included
/// (MPI_THREAD_FUNNELED suffices). It polls, because MPI has nothing to sleep on: at most every
/// millisecond when idle.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "metrics/registry.h"

namespace heddle::comm {

struct MpiOptions {
  std::string name;  ///< This worker's name, at most 63 bytes. Empty: "rank-" and its rank.
  /// A rank that has been silent for so long is lost; ranks in good health speak ten times as
  /// often. At least 100 ms.
  Duration silence_timeout = std::chrono::seconds(10);
  metrics::Registry* metrics = nullptr;  ///< Required; outlives the world.
};

/// The ranks that were launched together. One per process, once: MPI cannot be started again.
/// Thread: any; Connect and Finish by one caller at a time.
class MpiWorld {
 public:
  /// Starts MPI. Errors: kFailedPrecondition (MPI was started before; or the launcher started
  /// several processes and MPI found itself alone: it was built without this launcher's interface),
  /// kUnavailable (MPI_Init_thread failed), kDeadlineExceeded (it has not returned: another rank
  /// did not start; this process should then end by _exit, for MPI's thread cannot be stopped).
  static Result<std::unique_ptr<MpiWorld>> Start(const MpiOptions& options, Deadline deadline);
  virtual ~MpiWorld() = default;  ///< As Finish within 2 s, if it was not called.

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// A group of all ranks; every rank calls it with the same generation, which must be greater than
  /// those before. Groups may follow each other or live side by side. Communicators must be
  /// destroyed before the world. Errors: kInvalidArgument (generations differ),
  /// kDeadlineExceeded, kUnavailable, kFailedPrecondition (after a loss: the job must be started
  /// again).
  virtual Result<std::unique_ptr<Communicator>> Connect(int64_t generation,
                                                        Duration operation_timeout,
                                                        Deadline deadline) = 0;

  /// Ends MPI together with all other ranks, when all of them call it. Errors: kUnavailable after a
  /// loss, kDeadlineExceeded when a rank has not come: MPI is then left as it is, and the process
  /// must end without MPI_Finalize, which makes the launcher end the others.
  virtual Status Finish(Deadline deadline) = 0;
};

}  // namespace heddle::comm
