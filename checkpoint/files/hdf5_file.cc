#include "checkpoint/files/hdf5_file.h"

#include <algorithm>
#include <utility>

#include <hdf5.h>

#include "checkpoint/codec/codec.h"
#include "checkpoint/files/hdf5_driver.h"

namespace heddle::checkpoint {

namespace {

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

/// The library's error stack of this thread during one call of ours: silent, and empty afterwards
/// (the library looks for the zstd filter in vain and remembers that, and would leak it with the
/// thread).
class ErrorStack {
 public:
  ErrorStack() { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }
  ~ErrorStack() { H5Eclear2(H5E_DEFAULT); }
  ErrorStack(const ErrorStack&) = delete;
  ErrorStack& operator=(const ErrorStack&) = delete;
};

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

/// What the library shows for elements that it cannot find, as those of a worker's file that is not
/// there: NaN, in the element's own bits. Integers have none, and stay zero.
bool SetFillValue(hid_t creation, hid_t type, DType dtype) {
  const auto set = [&](auto bits) { return H5Pset_fill_value(creation, type, &bits) >= 0; };
  switch (dtype) {
    case DType::kF32:
      return set(uint32_t{0x7FC00000});
    case DType::kF64:
      return set(uint64_t{0x7FF8000000000000});
    case DType::kBF16:
      return set(uint16_t{0x7FC0});
    case DType::kF16:
      return set(uint16_t{0x7E00});
    case DType::kI32:
    case DType::kI64:
    case DType::kU8:
      return true;
  }
  return false;
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

/// The library takes '%' in the names of sources for the begin of a pattern; "%%" is one of them.
std::string VirtualName(const std::string& name) {
  std::string escaped;
  for (const char c : name) {
    escaped.append(c == '%' ? 2 : 1, c);
  }
  return escaped;
}

/// Room for the library's own part of a file with 1.10's layout, in one piece: so that it lies in
/// few of the file's blocks, which are then all that is written twice. A guess that is too small
/// costs further pieces.
hsize_t MetadataBytes(int64_t datasets, int64_t chunks) {
  constexpr int64_t kDatasetBytes = 640;  // With attributes and its links; 343 without.
  constexpr int64_t kChunkBytes = 24;     // An entry of the index.
  return static_cast<hsize_t>(std::clamp(datasets * kDatasetBytes + chunks * kChunkBytes,
                                         int64_t{2} << 10, int64_t{64} << 20));
}

}  // namespace

struct Hdf5File::State {
  std::string path;
  DriverBacking backing;
  Id file;
  Id dataset;
  bool begun = false;
};

Hdf5File::Hdf5File(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<Hdf5File>> Hdf5File::Create(const std::string& path,
                                                   int64_t datasets,
                                                   int64_t chunks) {
  auto state = std::make_unique<State>();
  state->path = path;
  HEDDLE_ASSIGN_OR_RETURN(state->backing.file, BlockFile::Create(path));
  const MutexLock lock(LibraryMutex());
  const hid_t driver = Driver();  // Before any other call of the library.
  const ErrorStack errors;
  const Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  DriverBacking* const backing = &state->backing;
  // The 1.10 layout checks its metadata with checksums and costs a ninth of the first layout's
  // bytes.
  if (!access.ok() || H5Pset_driver(access.get(), driver, &backing) < 0 ||
      H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_V110) < 0 ||
      H5Pset_meta_block_size(access.get(), MetadataBytes(datasets, chunks)) < 0 ||
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
  const ErrorStack errors;
  state_->dataset.Close();
  state_->file.Close();
}

bool Hdf5File::ok() const {
  return state_->backing.file->status().ok();
}

Status Hdf5File::Failure(const char* what) const {
  HEDDLE_RETURN_IF_ERROR(state_->backing.file->status());
  return InternalError("{} in {}: {}", what, state_->path, LibraryError());
}

Status Hdf5File::CreateDataset(const std::string& dataset,
                               const StoredBox& stored,
                               DType type,
                               int64_t creation) {
  const auto extent = Dimensions(stored.box.extent);
  const Id element = TypeOf(type);
  const Id space(H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr),
                 H5Sclose);
  const Id links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  if (!element.ok() || !space.ok() || !SetFillValue(creation, element.get(), type) ||
      H5Pset_create_intermediate_group(links.get(), 1) < 0 ||
      H5Pset_char_encoding(links.get(), H5T_CSET_UTF8) < 0) {
    return Failure("dataset properties");
  }
  state_->dataset = Id(H5Dcreate2(state_->file.get(), dataset.c_str(), element.get(), space.get(),
                                  links.get(), creation, H5P_DEFAULT),
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
  return state_->backing.file->status();
}

Status Hdf5File::BeginDataset(const std::string& dataset,
                              const StoredBox& stored,
                              const Shape& chunk) {
  const MutexLock lock(LibraryMutex());
  const ErrorStack errors;
  const auto chunk_extent = Dimensions(chunk);
  const Id creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  const unsigned level = 1;
  // The zstd filter is recorded as optional because the library refuses to create a dataset with an
  // unknown mandatory one; every chunk has it all the same.
  if (H5Pset_chunk(creation.get(), static_cast<int>(chunk_extent.size()), chunk_extent.data()) <
          0 ||
      H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_INCR) < 0 ||
      H5Pset_fill_time(creation.get(), H5D_FILL_TIME_IFSET) < 0 ||
      H5Pset_shuffle(creation.get()) < 0 ||
      H5Pset_filter(creation.get(), kZstdFilter, H5Z_FLAG_OPTIONAL, 1, &level) < 0) {
    return Failure("dataset properties");
  }
  return CreateDataset(dataset, stored, stored.stored_as.value_or(stored.dtype), creation.get());
}

Status Hdf5File::WriteVirtualDataset(const std::string& dataset,
                                     const TensorInfo& tensor,
                                     std::span<const VirtualSource> sources) {
  const MutexLock lock(LibraryMutex());
  const ErrorStack errors;
  const Id creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  const auto whole = Dimensions(tensor.shape);
  const int rank = static_cast<int>(whole.size());
  const Id target(H5Screate_simple(rank, whole.data(), nullptr), H5Sclose);
  for (const VirtualSource& source : sources) {
    const auto extent = Dimensions(source.box.extent);
    std::vector<hsize_t> offset(source.box.offset.begin(), source.box.offset.end());
    offset.resize(extent.size());  // A scalar's.
    const Id held(H5Screate_simple(rank, extent.data(), nullptr), H5Sclose);
    if (H5Sselect_hyperslab(target.get(), H5S_SELECT_SET, offset.data(), nullptr, extent.data(),
                            nullptr) < 0 ||
        H5Pset_virtual(creation.get(), target.get(), VirtualName(source.file).c_str(),
                       VirtualName(source.dataset).c_str(), held.get()) < 0) {
      return Failure("map a virtual dataset");
    }
  }
  const StoredBox stored{.name = tensor.name,
                         .role = tensor.role,
                         .dtype = tensor.dtype,
                         .global_shape = tensor.shape,
                         .box = WholeBox(tensor.shape)};
  HEDDLE_RETURN_IF_ERROR(CreateDataset(dataset, stored, tensor.dtype, creation.get()));
  return state_->dataset.Close() && ok() ? Status::Ok() : Failure("close a dataset");
}

Result<int64_t> Hdf5File::WriteChunk(const Shape& offset, std::span<const std::byte> bytes) {
  {
    const MutexLock lock(LibraryMutex());
    const ErrorStack errors;
    std::vector<hsize_t> position(offset.begin(), offset.end());
    if (position.empty()) {
      position.push_back(0);
    }
    state_->backing.raw_bytes = 0;
    if (H5Dwrite_chunk(state_->dataset.get(), H5P_DEFAULT, 0, position.data(), bytes.size(),
                       bytes.data()) < 0 ||
        !ok()) {
      return Failure("write a chunk");
    }
  }
  if (state_->backing.raw_bytes != bytes.size()) {
    return InternalError("{}: a chunk of {} bytes was written as {}", state_->path, bytes.size(),
                         state_->backing.raw_bytes);
  }
  // Outside the lock, like fsync: another file may be written while the disk works.
  state_->backing.file->FlushFull();
  return static_cast<int64_t>(state_->backing.raw_address);
}

Status Hdf5File::EndDataset() {
  const MutexLock lock(LibraryMutex());
  const ErrorStack errors;
  return state_->dataset.Close() && ok() ? Status::Ok() : Failure("close a dataset");
}

Result<FileRecord> Hdf5File::Close() {
  {
    const MutexLock lock(LibraryMutex());
    const ErrorStack errors;
    const bool closed = state_->dataset.Close() && state_->file.Close();
    if (!closed || !ok()) {
      return Failure("close");
    }
  }
  return state_->backing.file->Finish();
}

Status Hdf5File::Sync() {
  return state_->backing.file->Sync();
}

}  // namespace heddle::checkpoint
