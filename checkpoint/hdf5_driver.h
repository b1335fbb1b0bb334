/// \file
/// The file driver that libhdf5 writes through. It keeps the errno of the first failed write, and
/// from then on swallows writes, so that the library can always close a file it could not finish
/// (otherwise it keeps the descriptor, and with it the space of a full disk). It also tells where a
/// chunk went.
#pragma once

#include <cstddef>

#include <hdf5.h>

#include "base/mutex.h"
#include "base/unique_fd.h"

namespace heddle::checkpoint {

/// Serialises libhdf5 in this process, whatever its build.
Mutex& LibraryMutex();

/// What the driver and the owner of a file share.
struct DriverBacking {
  UniqueFd fd;
  int error = 0;  ///< errno of the first failed call; writes after it are swallowed.
  // The newest write of raw data: where the library put a chunk. Asking it walks all chunks each
  // time.
  haddr_t raw_address = HADDR_UNDEF;
  size_t raw_bytes = 0;
  size_t waiting_bytes = 0;  ///< Written since the kernel was last asked to begin with the disk.
};

/// Has the kernel begin to bring to storage what was written to a file; waits for nothing, promises
/// nothing: fsync does.
void StartWriteback(int fd);

/// The driver's identifier, for H5Pset_driver with a pointer to a DriverBacking*; starts the
/// library the first time.
hid_t Driver() HEDDLE_REQUIRES(LibraryMutex());

}  // namespace heddle::checkpoint
