/// \file
/// The communicator over MPI, for groups that never change: the ranks of one `mpirun` or
/// `srun --mpi=…`, on fabrics that only an MPI library supports, or beside other MPI code.
///
/// It is separate from the elastic path: no Endpoint offers it, no plan names it, and it cannot
/// form a new group after a loss. Open MPI 4.1 has no ULFM (the fault tolerance of MPI 5): when one
/// process dies, mpirun ends all of them. If that is disabled (--enable-recovery), or if a process
/// is stopped, the others' calls never return. So the ranks of one MPI job are one failure domain.
/// This backend adds timeouts: no call waits for ever, a silent peer becomes an error that names
/// it, and the process can then exit.
///
/// Heddle does not encrypt MPI's traffic between machines (docs/operate/security.md).
///
/// MPI carries only bytes. Each pair of ranks has a stream of bounded pieces in buffers of this
/// backend, and uses the messages, matching, priorities and collectives of all other transports
/// (comm/message/channel.h); so results, including the bits of ReduceTree, are the same. A caller's
/// buffer is never passed to MPI, because a send that MPI has begun cannot be cancelled, so that
/// the buffer could not be returned at a deadline or an Abort.
///
/// One thread of this library makes all MPI calls, including MPI_Init_thread and MPI_Finalize
/// (MPI_THREAD_FUNNELED suffices). It polls, because MPI cannot block with a timeout; when idle, it
/// sleeps up to a millisecond between polls.
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
  /// A rank from which nothing arrives for this time is lost. Ranks send heartbeats ten times as
  /// often. At least 100 ms.
  Duration silence_timeout = std::chrono::seconds(10);
  metrics::Registry* metrics = nullptr;  ///< Required; outlives the world.
};

/// The ranks that were launched together. A process has at most one in its life, because MPI cannot
/// be started again. Thread: any; Connect and Finish by one caller at a time.
class MpiWorld {
 public:
  /// Starts MPI. Errors: kFailedPrecondition (MPI was started before; or the launcher started
  /// several processes and MPI found itself alone: it was built without this launcher's interface),
  /// kUnavailable (MPI_Init_thread failed), kDeadlineExceeded (it has not returned: another rank
  /// did not start; this process should then end by _exit, for MPI's thread cannot be stopped).
  static Result<std::unique_ptr<MpiWorld>> Start(const MpiOptions& options, Deadline deadline);
  virtual ~MpiWorld() = default;  ///< Calls Finish with a timeout of 2 s if it was not called.

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Forms a group of all ranks. Every rank calls it with the same generation, which must be
  /// greater than those before. Several groups may exist at a time. Communicators must be destroyed
  /// before the world. Errors: kInvalidArgument (generations differ), kDeadlineExceeded,
  /// kUnavailable, kFailedPrecondition (after a loss; the job must be started again).
  virtual Result<std::unique_ptr<Communicator>> Connect(int64_t generation,
                                                        Duration operation_timeout,
                                                        Deadline deadline) = 0;

  /// Ends MPI together with all other ranks; all of them must call it. Errors: kUnavailable (after
  /// a loss), kDeadlineExceeded (a rank has not called it). On an error MPI is not finalized; the
  /// process must exit without MPI_Finalize, which makes the launcher end the other ranks.
  virtual Status Finish(Deadline deadline) = 0;
};

}  // namespace heddle::comm
