#include "tests/engine_runtime/device/check.h"

#include <cstdlib>
#include <fstream>

#include <nlohmann/json.hpp>

#include "tests/support/device/fake_device.h"
#ifdef HEDDLE_WITH_CUDA
#include "tests/support/device/cuda/cuda_queue.h"
#endif

namespace heddle::runtime::testing {
namespace {

std::string Variable(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return value == nullptr ? otherwise : value;
}

}  // namespace

std::string CheckedName() {
  return Variable("HEDDLE_CHECK_DEVICE", "cpu");
}

bool ChecksCard() {
  return CheckedName().starts_with("cuda");
}

Result<std::unique_ptr<Device>> OpenChecked() {
  if (CheckedName() == "fake") {
    return std::unique_ptr<Device>(
        std::make_unique<FakeDevice>(FakeOptions{.memory_bytes = size_t{1} << 30}));
  }
  return OpenDevice(CheckedName(), {});
}

InQueue CheckedQueue() {
#ifdef HEDDLE_WITH_CUDA
  if (ChecksCard()) {
    return &CallInCudaQueue;
  }
#endif
  return {};
}

int64_t Size(int64_t small, int64_t large) {
  return ChecksCard() ? large : small;
}

void Note(const std::string& what, nlohmann::json figures) {
  const std::string path = Variable("HEDDLE_CHECK_OUT", "");
  if (!path.empty()) {
    figures["what"] = what;
    figures["device"] = CheckedName();
    std::ofstream(path, std::ios::app) << figures.dump() << std::endl;
  }
}

}  // namespace heddle::runtime::testing
