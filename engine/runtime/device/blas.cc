#include "engine/runtime/device/blas.h"

#include <fstream>
#include <sstream>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <malloc.h>

#include "base/check.h"
#include "base/log.h"

namespace heddle::runtime {
namespace {

/// The path at the end of the maps line that holds `needle`, or "".
std::string PathWith(std::string_view maps, std::string_view needle) {
  const size_t found = maps.find(needle);
  if (found == std::string_view::npos) {
    return "";
  }
  const size_t line = maps.rfind('\n', found) + 1;  // npos + 1 is 0: the first line.
  const size_t start = maps.find('/', line);
  const size_t end = std::min(maps.find('\n', found), maps.size());
  return start < end ? std::string(maps.substr(start, end - start)) : "";
}

}  // namespace

std::string_view BlasName(BlasKind kind) {
  switch (kind) {
    case BlasKind::kOpenBlasOpenMp:
      return "openblas-openmp";
    case BlasKind::kMkl:
      return "mkl";
    case BlasKind::kOpenBlasPthread:
      return "openblas-pthread";
    case BlasKind::kReference:
      return "reference";
    case BlasKind::kUnknown:
      break;
  }
  return "unknown";
}

Blas FindBlas(std::string_view maps, bool has_mkl) {
  if (has_mkl) {
    return {BlasKind::kMkl, PathWith(maps, "libmkl_")};
  }
  // Debian's alternatives resolve to /usr/lib/…/openblas-openmp/libblas.so.3 and the like; the
  // reference libblas may be loaded beside OpenBLAS by another library, so it is looked for last.
  if (const std::string path = PathWith(maps, "openblas-openmp/"); !path.empty()) {
    return {BlasKind::kOpenBlasOpenMp, path};
  }
  if (const std::string path = PathWith(maps, "openblas-pthread/"); !path.empty()) {
    return {BlasKind::kOpenBlasPthread, path};
  }
  if (const std::string path = PathWith(maps, "/blas/libblas.so"); !path.empty()) {
    return {BlasKind::kReference, path};
  }
  return {};
}

Blas LoadedBlas() {
  std::ifstream file("/proc/self/maps");
  std::stringstream maps;
  maps << file.rdbuf();
  return FindBlas(maps.str(), at::hasMKL());
}

std::string BlasWarning(const Blas& blas) {
  switch (blas.kind) {
    case BlasKind::kOpenBlasOpenMp:
    case BlasKind::kMkl:
      return "";
    case BlasKind::kOpenBlasPthread:
      return "WRONG BLAS: " + blas.path +
             " has its own threads, which fight with libtorch's (up to 2.4 times slower); install "
             "libopenblas0-openmp";
    case BlasKind::kReference:
      return "WRONG BLAS: " + blas.path +
             " is the reference implementation (20 times slower); install libopenblas0-openmp";
    case BlasKind::kUnknown:
      break;
  }
  return "UNKNOWN BLAS: neither OpenBLAS nor MKL is loaded; matrix products may be slow (install "
         "libopenblas0-openmp)";
}

void WarnAboutBlas() {
  const std::string warning = BlasWarning(LoadedBlas());
  if (!warning.empty()) {
    LogWarning("{}", warning);
  }
}

void SetThreads(int threads) {
  HEDDLE_CHECK(threads >= 1, "{} threads", threads);
  at::set_num_threads(threads);
  // Only OpenBLAS has this symbol; its OpenMP build accepts the same number.
  using SetOpenBlasThreads = void (*)(int);
  if (auto set =
          reinterpret_cast<SetOpenBlasThreads>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads"))) {
    set(threads);
  }
}

void KeepFreedMemory() {
#ifdef __GLIBC__
  constexpr int kWholeAddressSpace = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kWholeAddressSpace);
  mallopt(M_TRIM_THRESHOLD, kWholeAddressSpace);
  mallopt(M_TOP_PAD, 64 << 20);
  // What one thread frees serves the others, and can be given back.
  mallopt(M_ARENA_MAX, 1);
#endif
}

}  // namespace heddle::runtime
