#include "checkpoint/hdf5_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <hdf5.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mutex.h"
#include "base/unique_fd.h"
#include "checkpoint/codec.h"

namespace heddle::checkpoint {

namespace {

/// Serialises libhdf5 in this process, whatever its build.
Mutex& LibraryMutex() {
  static Mutex mutex;
  return mutex;
}

/// One library identifier with one owner.
class Id {
 public:
  using Closer = herr_t (*)(hid_t);
  Id() = default;
  Id(hid_t id, Closer close) : id_(id), close_(close) {}
  Id(Id&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Id& operator=(Id&& other) noexcept {
    if (this != &other) {
      Close();
      id_ = std::exchange(other.id_, -1);
      close_ = other.close_;
    }
    return *this;
  }
  ~Id() { Close(); }
  hid_t get() const { return id_; }
  bool ok() const { return id_ >= 0; }
  /// False when the library reports an error.
  bool Close() { return id_ < 0 || close_(std::exchange(id_, -1)) >= 0; }

 private:
  hid_t id_ = -1;
  Closer close_ = nullptr;
};

/// What the driver and the owner of a file share.
struct Backing {
  UniqueFd fd;
  int error = 0;  ///< errno of the first failed call; writes after it are swallowed.
  // The newest write of raw data: where the library put a chunk. Asking it walks all chunks each
  // time.
  haddr_t raw_address = HADDR_UNDEF;
  size_t raw_bytes = 0;
};

struct DriverFile {
  H5FD_t base;  // The library's part comes first.
  Backing* backing;
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
  const auto* info = static_cast<Backing* const*>(H5Pget_driver_info(access));
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
  Backing& backing = *Cast(file)->backing;
  const auto* source = static_cast<const char*>(buffer);
  if (type == H5FD_MEM_DRAW) {
    backing.raw_address = address;
    backing.raw_bytes = size;
  }
  Cast(file)->end = std::max(Cast(file)->end, address + size);
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

hid_t Driver() HEDDLE_REQUIRES(LibraryMutex()) {
  static const hid_t driver = [] {
    H5dont_atexit();  // Nothing is open at exit that must still be written.
    H5open();
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    static H5FD_class_t driver_class = {};
    driver_class.name = "heddle";
    driver_class.maxaddr = (haddr_t{1} << 62) - 1;
    driver_class.fc_degree = H5F_CLOSE_STRONG;
    driver_class.fapl_size = sizeof(Backing*);
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

/// The deepest message of the library's error stack.
std::string LibraryError() {
  std::string text = "no reason given";
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned depth, const H5E_error2_t* error, void* out) -> herr_t {
        if (depth == 0 && error->desc != nullptr) {
          *static_cast<std::string*>(out) = error->desc;
        }
        return 0;
      },
      &text);
  H5Eclear2(H5E_DEFAULT);
  return text;
}

/// A little-endian float with the given fields; invalid on failure.
Id FloatType(size_t bits, size_t exponent_bits, size_t bias) {
  Id type(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
  const size_t fraction = bits - 1 - exponent_bits;
  if (!type.ok() || H5Tset_fields(type.get(), bits - 1, fraction, exponent_bits, 0, fraction) < 0 ||
      H5Tset_precision(type.get(), bits) < 0 || H5Tset_size(type.get(), bits / 8) < 0 ||
      H5Tset_ebias(type.get(), bias) < 0) {
    return {};
  }
  return type;
}

Id TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return {H5Tcopy(H5T_IEEE_F32LE), H5Tclose};
    case DType::kF64:
      return {H5Tcopy(H5T_IEEE_F64LE), H5Tclose};
    case DType::kI32:
      return {H5Tcopy(H5T_STD_I32LE), H5Tclose};
    case DType::kI64:
      return {H5Tcopy(H5T_STD_I64LE), H5Tclose};
    case DType::kU8:
      return {H5Tcopy(H5T_STD_U8LE), H5Tclose};
    case DType::kBF16:
      return FloatType(16, 8, 127);
    case DType::kF16:
      return FloatType(16, 5, 15);
  }
  return {};
}

bool PutShape(hid_t object, const char* name, const Shape& shape) {
  const auto length = static_cast<hsize_t>(shape.size());
  const Id space(shape.empty() ? H5Screate(H5S_NULL) : H5Screate_simple(1, &length, nullptr),
                 H5Sclose);
  const Id attribute(H5Acreate2(object, name, H5T_STD_I64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT),
                     H5Aclose);
  return attribute.ok() &&
         (shape.empty() || H5Awrite(attribute.get(), H5T_NATIVE_INT64, shape.data()) >= 0);
}

bool PutText(hid_t object, const char* name, const std::string& text) {
  const Id type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type.get(), std::max<size_t>(text.size(), 1));
  H5Tset_strpad(type.get(), H5T_STR_NULLPAD);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  const Id space(H5Screate(H5S_SCALAR), H5Sclose);
  const Id attribute(H5Acreate2(object, name, type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT),
                     H5Aclose);
  return attribute.ok() && H5Awrite(attribute.get(), type.get(), text.c_str()) >= 0;
}

/// A scalar cannot be chunked: it is stored as one element of rank 1.
std::vector<hsize_t> Dimensions(const Shape& shape) {
  std::vector<hsize_t> dimensions;
  for (const int64_t extent : shape) {
    dimensions.push_back(static_cast<hsize_t>(extent));
  }
  if (dimensions.empty()) {
    dimensions.push_back(1);
  }
  return dimensions;
}

}  // namespace

struct Hdf5File::State {
  std::string path;
  Backing backing;
  Id file;
  Id dataset;
  bool begun = false;
};

Hdf5File::Hdf5File(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<Hdf5File>> Hdf5File::Create(const std::string& path) {
  auto state = std::make_unique<State>();
  state->path = path;
  state->backing.fd = UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!state->backing.fd.valid()) {
    return ErrnoError(errno, "create " + path);
  }
  const MutexLock lock(LibraryMutex());
  const hid_t driver = Driver();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);  // The error stack belongs to the thread.
  const Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  Backing* const backing = &state->backing;
  // The 1.10 layout checks its metadata with checksums and costs a ninth of the first layout's
  // bytes.
  if (!access.ok() || H5Pset_driver(access.get(), driver, &backing) < 0 ||
      H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_V110) < 0 ||
      H5Pset_fclose_degree(access.get(), H5F_CLOSE_STRONG) < 0) {
    return InternalError("HDF5 access properties: {}", LibraryError());
  }
  state->file = Id(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), H5Fclose);
  if (!state->file.ok()) {
    return InternalError("create {}: {}", path, LibraryError());
  }
  return std::unique_ptr<Hdf5File>(new Hdf5File(std::move(state)));
}

Hdf5File::~Hdf5File() {
  const MutexLock lock(LibraryMutex());
  state_->dataset.Close();
  state_->file.Close();
}

Status Hdf5File::Failure(const char* what) const {
  if (state_->backing.error != 0) {
    // A file size limit is a quota to us: the caller's answer is that of a full disk.
    const int error = state_->backing.error;
    if (error == EFBIG || error == ENOSPC || error == EDQUOT) {
      return ResourceExhaustedError("write {}: {}", state_->path,
                                    ErrnoError(error, "no room").message());
    }
    return ErrnoError(error, "write " + state_->path);
  }
  return InternalError("{} in {}: {}", what, state_->path, LibraryError());
}

Status Hdf5File::BeginDataset(const std::string& dataset,
                              const StoredBox& stored,
                              const Shape& chunk) {
  const MutexLock lock(LibraryMutex());
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  const auto extent = Dimensions(stored.box.extent);
  const auto chunk_extent = Dimensions(chunk);
  const int rank = static_cast<int>(extent.size());
  const Id type = TypeOf(stored.dtype);
  const Id space(H5Screate_simple(rank, extent.data(), nullptr), H5Sclose);
  const Id links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  const Id creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  const unsigned level = 1;
  // The zstd filter is recorded as optional because the library refuses to create a dataset with an
  // unknown mandatory one; every chunk has it all the same.
  if (!type.ok() || !space.ok() || H5Pset_create_intermediate_group(links.get(), 1) < 0 ||
      H5Pset_char_encoding(links.get(), H5T_CSET_UTF8) < 0 ||
      H5Pset_chunk(creation.get(), rank, chunk_extent.data()) < 0 ||
      H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_INCR) < 0 ||
      H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER) < 0 ||
      H5Pset_shuffle(creation.get()) < 0 ||
      H5Pset_filter(creation.get(), kZstdFilter, H5Z_FLAG_OPTIONAL, 1, &level) < 0) {
    return Failure("dataset properties");
  }
  state_->dataset = Id(H5Dcreate2(state_->file.get(), dataset.c_str(), type.get(), space.get(),
                                  links.get(), creation.get(), H5P_DEFAULT),
                       H5Dclose);
  if (!state_->dataset.ok()) {
    return Failure("create a dataset");
  }
  const hid_t id = state_->dataset.get();
  if (!PutShape(id, "box_offset", stored.box.offset) ||
      !PutShape(id, "global_shape", stored.global_shape) ||
      !PutText(id, "logical_dtype", std::string(DTypeName(stored.dtype))) ||
      !PutText(id, "name", stored.name)) {
    return Failure("write attributes");
  }
  return state_->backing.error == 0 ? Status::Ok() : Failure("write");
}

Result<int64_t> Hdf5File::WriteChunk(const Shape& offset, std::span<const std::byte> bytes) {
  const MutexLock lock(LibraryMutex());
  std::vector<hsize_t> position;
  for (const int64_t index : offset) {
    position.push_back(static_cast<hsize_t>(index));
  }
  if (position.empty()) {
    position.push_back(0);
  }
  state_->backing.raw_bytes = 0;
  if (H5Dwrite_chunk(state_->dataset.get(), H5P_DEFAULT, 0, position.data(), bytes.size(),
                     bytes.data()) < 0 ||
      state_->backing.error != 0) {
    return Failure("write a chunk");
  }
  if (state_->backing.raw_bytes != bytes.size()) {
    return InternalError("{}: a chunk of {} bytes was written as {}", state_->path, bytes.size(),
                         state_->backing.raw_bytes);
  }
  return static_cast<int64_t>(state_->backing.raw_address);
}

Status Hdf5File::EndDataset() {
  const MutexLock lock(LibraryMutex());
  return state_->dataset.Close() && state_->backing.error == 0 ? Status::Ok()
                                                               : Failure("close a dataset");
}

Status Hdf5File::Close() {
  {
    const MutexLock lock(LibraryMutex());
    const bool closed = state_->dataset.Close() && state_->file.Close();
    if (!closed || state_->backing.error != 0) {
      return Failure("close");
    }
  }
  // Outside the lock: another file may be written while the disk works. A failed fsync is never
  // repeated: the kernel reports it once.
  if (::fsync(state_->backing.fd.get()) != 0) {
    state_->backing.error = errno;
    return Failure("fsync");
  }
  return Status::Ok();
}

}  // namespace heddle::checkpoint
