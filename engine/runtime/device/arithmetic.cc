#include "engine/runtime/device/arithmetic.h"

#include <array>
#include <fstream>
#include <sstream>
#include <string_view>

#include <ATen/Context.h>
#include <ATen/Version.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <omp.h>
#include <torch/csrc/api/include/torch/version.h>
#include <unistd.h>

#include "engine/runtime/device/blas.h"
#include "engine/runtime/kernels/simd/simd.h"

namespace heddle::runtime {
namespace {

constexpr size_t kMaxBytes = 200;

// What follows `key` in the first line of `text` that has it; empty: no line has it.
std::string LineAfter(std::istream& text, std::string_view key) {
  for (std::string line; std::getline(text, line);) {
    if (const size_t found = line.find(key); found != std::string::npos) {
      return line.substr(found + key.size());
    }
  }
  return "";
}

std::string ProcessorName() {
  std::ifstream info("/proc/cpuinfo");
  const std::string name = LineAfter(info, "model name\t: ");
  return name.empty() ? "unknown" : name;
}

// The instruction set that libtorch's own kernels use. ATEN_CPU_CAPABILITY can lower it.
std::string LibtorchInstructions() {
  std::istringstream config(at::show_config());
  return LineAfter(config, "CPU capability usage: ");
}

// The result of a library's function without arguments, or `otherwise` if no loaded library has it.
template <typename Value>
Value Ask(const char* function, Value otherwise) {
  using Function = Value (*)();
  const auto found = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, function));
  return found == nullptr ? otherwise : found();
}

// OpenBLAS chooses its kernels when it is loaded, by the processor, by what the kernel permits, and
// by OPENBLAS_CORETYPE.
std::string BlasInUse() {
  const std::string_view name = BlasName(LoadedBlas().kind);
  if (at::hasMKL()) {
    return fmt::format("{} {}", name, at::get_mkl_version());
  }
  const char* const config = Ask<char*>("openblas_get_config", nullptr);
  const char* const core = Ask<char*>("openblas_get_corename", nullptr);
  std::istringstream words(config == nullptr ? "" : config);  // "OpenBLAS 0.3.21 DYNAMIC_ARCH ..."
  std::string product;
  std::string version;
  words >> product >> version;
  return fmt::format("{} {} {}", name, version, core == nullptr ? "" : core);
}

// ONEDNN_MAX_CPU_ISA can lower what oneDNN uses of the processor.
std::string OneDnnInUse() {
  return fmt::format("{} isa {:#x}", at::get_mkldnn_version(),
                     Ask<int>("dnnl_get_effective_cpu_isa", 0));
}

// "glibc 2.36": it has the exponential and logarithm of scalars.
std::string LibcVersion() {
  std::array<char, 64> text{};
  confstr(_CS_GNU_LIBC_VERSION, text.data(), text.size());
  return text.data();
}

// On one line of printable ASCII, without spaces at its ends.
std::string Plain(std::string_view text) {
  std::string plain;
  for (const char c : text.substr(0, kMaxBytes)) {
    plain += c == '\n' || c == '\t' ? ' ' : c >= ' ' && c <= '~' ? c : '?';
  }
  plain.erase(0, plain.find_first_not_of(' '));
  plain.erase(plain.find_last_not_of(' ') + 1);
  return plain;
}

}  // namespace

Arithmetic CpuArithmetic() {
  Arithmetic parts = {
      {"processor", ProcessorName()},
      {"instructions", fmt::format("{}, libtorch {}", simd::ActiveSet(), LibtorchInstructions())},
      {"blas", BlasInUse()},
      {"libtorch", TORCH_VERSION},
      {"onednn", OneDnnInUse()},
      {"libc", LibcVersion()},
      {"compiler", __VERSION__}};
  // OMP_THREAD_LIMIT leaves a job's kernels fewer threads than the job asks for.
  if (const int most = omp_get_thread_limit(); most < (1 << 20)) {
    parts["openmp"] = fmt::format("at most {} threads", most);
  }
  for (auto& [name, value] : parts) {
    value = Plain(value);
  }
  return parts;
}

}  // namespace heddle::runtime
