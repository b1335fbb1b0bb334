/// \file
/// Goal: whether the card's memory can be exported to RDMA devices, and why not.
#include <cstdint>
#include <string>

#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/system/unique_fd.h"
#include "engine/machine/cards.h"
#include "engine/machine/device_name.h"
#include "tests/engine_runtime/device/check.h"

namespace heddle::runtime::testing {
namespace {

constexpr uint64_t kAlignment = 2 << 20;  // Of memory that is exported, in place and size.

/// Exports the part of `value` that is aligned. Empty: done; or what CUDA's driver library says.
std::string Export(const at::Tensor& value) {
  constexpr int kAsDmaBuf = 1;  // CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
  using Function = int(void*, uint64_t, size_t, int, unsigned long long);  // NOLINT: as cuda.h
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  auto* const get =
      library == nullptr
          ? nullptr
          : reinterpret_cast<Function*>(::dlsym(library, "cuMemGetHandleForAddressRange"));
  if (get == nullptr) {
    return "libcuda.so.1 has no cuMemGetHandleForAddressRange";
  }
  const auto begin = reinterpret_cast<uint64_t>(value.data_ptr());
  const uint64_t aligned = (begin + kAlignment - 1) / kAlignment * kAlignment;
  int descriptor = -1;
  const int code = get(&descriptor, aligned, kAlignment, kAsDmaBuf, 0);
  const UniqueFd fd(code == 0 ? descriptor : -1);
  return code == 0 ? "" : fmt::format("cuMemGetHandleForAddressRange returned {}", code);
}

// A driver that does not offer it is no failure; one that offers it and then does not do it is.
TEST(DeviceCheckDmaBuf, ADriverThatOffersToExportMemoryDoesSo) {
  const auto name = machine::ParseDeviceName(CheckedName());
  if (!ChecksCard() || !name.ok()) {
    GTEST_SKIP() << "no card";
  }
  const machine::Cards cards = machine::FindCards({.cuda = "libcuda.so.1"});
  auto device = OpenChecked();
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  ASSERT_LT(static_cast<size_t>(name->index), cards.list.size()) << cards.fault;
  const std::string why_not = cards.list[static_cast<size_t>(name->index)].no_dma_buf;
  const at::Tensor value = (*device)->Empty(
      {.dtype = DType::kI32, .shape = {int64_t{2 * kAlignment / sizeof(int32_t)}}});
  const std::string failure = Export(value);
  Say("dma-buf: " + (why_not.empty() ? "offered" : why_not));
  Say("exporting 2 MiB: " + (failure.empty() ? "done" : failure));
  Note("dma_buf", {{"why_not", why_not}, {"export_failure", failure}});
  EXPECT_TRUE(!why_not.empty() || failure.empty());
}

}  // namespace
}  // namespace heddle::runtime::testing
