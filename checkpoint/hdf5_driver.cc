#include "checkpoint/hdf5_driver.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include <fcntl.h>
#include <unistd.h>

namespace heddle::checkpoint {

namespace {

/// The disk works while chunks are still being compressed, not only once all are written.
constexpr size_t kWritebackBytes = size_t{8} << 20;

struct DriverFile {
  H5FD_t base;  // The library's part comes first.
  DriverBacking* backing;
  haddr_t allocated;
  haddr_t end;
};

DriverFile* Cast(H5FD_t* file) {
  return reinterpret_cast<DriverFile*>(file);
}
const DriverFile* Cast(const H5FD_t* file) {
  return reinterpret_cast<const DriverFile*>(file);
}

H5FD_t* DriverOpen(const char* /*name*/, unsigned /*flags*/, hid_t access, haddr_t /*maximum*/) {
  const auto* info = static_cast<DriverBacking* const*>(H5Pget_driver_info(access));
  if (info == nullptr) {
    return nullptr;
  }
  // The library frees nothing of it: DriverClose does.
  return reinterpret_cast<H5FD_t*>(
      new DriverFile{.base = {}, .backing = *info, .allocated = 0, .end = 0});
}

herr_t DriverClose(H5FD_t* file) {
  delete Cast(file);
  return 0;
}

herr_t DriverQuery(const H5FD_t* /*file*/,
                   unsigned long* flags) {  // NOLINT(google-runtime-int): HDF5's type
  *flags =
      H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_AGGREGATE_SMALLDATA;
  return 0;
}

haddr_t DriverGetAllocated(const H5FD_t* file, H5FD_mem_t /*type*/) {
  return Cast(file)->allocated;
}

herr_t DriverSetAllocated(H5FD_t* file, H5FD_mem_t /*type*/, haddr_t address) {
  Cast(file)->allocated = address;
  return 0;
}

haddr_t DriverGetEnd(const H5FD_t* file, H5FD_mem_t /*type*/) {
  return Cast(file)->end;
}

herr_t DriverRead(H5FD_t* file,
                  H5FD_mem_t /*type*/,
                  hid_t /*transfer*/,
                  haddr_t address,
                  size_t size,
                  void* buffer) {
  auto* target = static_cast<char*>(buffer);
  while (size > 0) {
    const ssize_t got =
        ::pread(Cast(file)->backing->fd.get(), target, size, static_cast<off_t>(address));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return -1;
    }
    if (got == 0) {  // Behind the end: the library expects zeros.
      std::memset(target, 0, size);
      return 0;
    }
    target += got;
    address += static_cast<haddr_t>(got);
    size -= static_cast<size_t>(got);
  }
  return 0;
}

herr_t DriverWrite(H5FD_t* file,
                   H5FD_mem_t type,
                   hid_t /*transfer*/,
                   haddr_t address,
                   size_t size,
                   const void* buffer) {
  DriverBacking& backing = *Cast(file)->backing;
  const auto* source = static_cast<const char*>(buffer);
  if (type == H5FD_MEM_DRAW) {
    backing.raw_address = address;
    backing.raw_bytes = size;
  }
  Cast(file)->end = std::max(Cast(file)->end, address + size);
  backing.waiting_bytes += size;
  while (size > 0 && backing.error == 0) {
    const ssize_t put = ::pwrite(backing.fd.get(), source, size, static_cast<off_t>(address));
    if (put < 0 && errno == EINTR) {
      continue;
    }
    if (put <= 0) {
      backing.error = put == 0 ? ENOSPC : errno;
      break;
    }
    source += put;
    address += static_cast<haddr_t>(put);
    size -= static_cast<size_t>(put);
  }
  if (backing.waiting_bytes >= kWritebackBytes) {
    backing.waiting_bytes = 0;
    StartWriteback(backing.fd.get());
  }
  return 0;
}

herr_t DriverTruncate(H5FD_t* file, hid_t /*transfer*/, hbool_t /*closing*/) {
  DriverFile& self = *Cast(file);
  if (self.backing->error == 0 && self.end != self.allocated &&
      ::ftruncate(self.backing->fd.get(), static_cast<off_t>(self.allocated)) != 0) {
    self.backing->error = errno;
  }
  self.end = self.allocated;
  return 0;
}

}  // namespace

void StartWriteback(int fd) {
  ::sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);  // A hint: failures show at fsync.
}

Mutex& LibraryMutex() {
  static Mutex mutex;
  return mutex;
}

hid_t Driver() {
  static const hid_t driver = [] {
    H5dont_atexit();  // Nothing is open at exit that must still be written.
    H5open();
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    static H5FD_class_t driver_class = {};
    driver_class.name = "heddle";
    driver_class.maxaddr = (haddr_t{1} << 62) - 1;
    driver_class.fc_degree = H5F_CLOSE_STRONG;
    driver_class.fapl_size = sizeof(DriverBacking*);
    driver_class.open = DriverOpen;
    driver_class.close = DriverClose;
    driver_class.query = DriverQuery;
    driver_class.get_eoa = DriverGetAllocated;
    driver_class.set_eoa = DriverSetAllocated;
    driver_class.get_eof = DriverGetEnd;
    driver_class.read = DriverRead;
    driver_class.write = DriverWrite;
    driver_class.truncate = DriverTruncate;
    const H5FD_mem_t map[] = H5FD_FLMAP_DICHOTOMY;
    std::copy(std::begin(map), std::end(map), std::begin(driver_class.fl_map));
    return H5FDregister(&driver_class);
  }();
  return driver;
}

}  // namespace heddle::checkpoint
