/// \file
/// The file driver that libhdf5 writes through, into a BlockFile. That swallows writes after the
/// first failure, so that the library can always close a file that it could not finish. The driver
/// also tells where a chunk went.
#pragma once

#include <cstddef>
#include <memory>

#include <hdf5.h>

#include "base/mutex.h"
#include "checkpoint/files/block_file.h"

namespace heddle::checkpoint {

/// Serialises libhdf5 in this process, whatever its build.
Mutex& LibraryMutex();

/// What the driver and the owner of a file share.
struct DriverBacking {
  std::unique_ptr<BlockFile> file;
  // The newest write of raw data: where the library put a chunk. Asking it walks all chunks each
  // time.
  haddr_t raw_address = HADDR_UNDEF;
  size_t raw_bytes = 0;
};

/// The driver's identifier, for H5Pset_driver with a pointer to a DriverBacking*; starts the
/// library the first time.
hid_t Driver() HEDDLE_REQUIRES(LibraryMutex());

}  // namespace heddle::checkpoint
