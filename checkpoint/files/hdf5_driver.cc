#include "checkpoint/files/hdf5_driver.h"

#include <algorithm>
#include <iterator>

namespace heddle::checkpoint {

namespace {

struct DriverFile {
  H5FD_t base;  // The library's part comes first.
  DriverBacking* backing;
  haddr_t allocated;
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
  return reinterpret_cast<H5FD_t*>(new DriverFile{.base = {}, .backing = *info, .allocated = 0});
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
  return static_cast<haddr_t>(Cast(file)->backing->file->bytes());
}

herr_t DriverRead(H5FD_t* file,
                  H5FD_mem_t /*type*/,
                  hid_t /*transfer*/,
                  haddr_t address,
                  size_t size,
                  void* buffer) {
  Cast(file)->backing->file->Read(static_cast<int64_t>(address),
                                  {static_cast<std::byte*>(buffer), size});
  return 0;
}

herr_t DriverWrite(H5FD_t* file,
                   H5FD_mem_t type,
                   hid_t /*transfer*/,
                   haddr_t address,
                   size_t size,
                   const void* buffer) {
  DriverBacking& backing = *Cast(file)->backing;
  if (type == H5FD_MEM_DRAW) {
    backing.raw_address = address;
    backing.raw_bytes = size;
  }
  backing.file->Write(static_cast<int64_t>(address), {static_cast<const std::byte*>(buffer), size});
  return 0;
}

herr_t DriverTruncate(H5FD_t* file, hid_t /*transfer*/, hbool_t /*closing*/) {
  Cast(file)->backing->file->Resize(static_cast<int64_t>(Cast(file)->allocated));
  return 0;
}

}  // namespace

Mutex& LibraryMutex() {
  static Mutex mutex;
  return mutex;
}

hid_t Driver() {
  static const hid_t kDriver = [] {
    H5dont_atexit();  // Nothing is open at exit that must still be written.
    H5open();
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    static H5FD_class_t driver_class = {};
    driver_class.name = "heddle";
    driver_class.maxaddr = (haddr_t{1} << 62) - 1;
    driver_class.fc_degree = H5F_CLOSE_STRONG;
    driver_class.fapl_size =
        sizeof(DriverBacking*);  // NOLINT(bugprone-sizeof-expression): a pointer is kept
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
  return kDriver;
}

}  // namespace heddle::checkpoint
