/// \file
/// The file driver through which libhdf5 writes into a BlockFile. The BlockFile ignores writes
/// after the first failure, so that the library can always close a file that it could not finish.
/// The driver also reports the address of a chunk.
#pragma once

#include <cstddef>
#include <memory>

#include <hdf5.h>

#include "base/mutex.h"
#include "checkpoint/files/block_file.h"

namespace heddle::checkpoint {

/// The mutex that serialises calls of libhdf5 in this process, however the library was built.
Mutex& LibraryMutex();

/// State that the driver and the owner of a file share.
struct DriverBacking {
  std::unique_ptr<BlockFile> file;
  // The last write of raw data, which is the last chunk. Querying the library for its address would
  // walk over all chunks each time.
  haddr_t raw_address = HADDR_UNDEF;
  size_t raw_bytes = 0;
};

/// The driver's identifier, for H5Pset_driver with a pointer to a DriverBacking*. The first call
/// initialises the library.
hid_t Driver() HEDDLE_REQUIRES(LibraryMutex());

}  // namespace heddle::checkpoint
