/// \file
/// The device that the check of a device is about, and where its figures go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json_fwd.hpp>

#include "base/clock.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "engine/runtime/device/device.h"
#include "metrics/registry.h"
#include "tests/support/device/contract.h"

namespace heddle::runtime::testing {

/// "cpu", "fake" (tests/support/device) or a card, by HEDDLE_CHECK_DEVICE; else cpu.
std::string CheckedName();
bool ChecksCard();
/// Opens it. After an error it also prints a line "cannot: …", which scripts/device-check shows.
Result<std::unique_ptr<Device>> OpenChecked();
/// The same as TrainingOptions::make_device.
std::unique_ptr<Device> DeviceOfRank(int rank);
/// What has a function run within the device's queue.
InQueue CheckedQueue();
/// The size that belongs to what is checked: `small` on the processor, `large` on a card.
int64_t Size(int64_t small, int64_t large);
/// Whether cuDNN computes attention of grouped heads of `head_dim` on `device`, a card.
bool CudnnTakes(Device& device, int64_t head_dim);

/// The longest wait for the device.
constexpr Duration kPatience = std::chrono::minutes(2);
/// Copies of a value on the device, and in the host's memory.
at::Tensor OnDevice(Device& device, const at::Tensor& host);
at::Tensor OnHost(Device& device, const at::Tensor& value);

/// Memory that workers of a host share, as messages are in.
class SharedSlab {
 public:
  /// Errors: those of comm::Endpoint.
  static Result<std::unique_ptr<SharedSlab>> Create(size_t bytes);
  std::span<std::byte> bytes() const { return buffer_.bytes(); }

 private:
  metrics::Registry registry_;
  std::unique_ptr<comm::Endpoint> endpoint_;
  comm::SharedBuffer buffer_;
};

/// The value in the middle, which is one of them. Precondition: there are some.
double Median(std::vector<double> values);

/// Prints a line for people, which scripts/device-check shows.
void Say(const std::string& text);
/// Adds a line to the file that HEDDLE_CHECK_OUT names, at once, so that a run that is cut off
/// leaves what it had; without a name it is dropped.
void Note(const std::string& what, nlohmann::json figures);

}  // namespace heddle::runtime::testing
