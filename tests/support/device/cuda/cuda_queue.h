/// \file
/// A function of the host in the queue of a card's compute, for tests (contract.h).
#pragma once

#include <functional>

namespace heddle::runtime::testing {

/// Has the card call `function`, from a thread of the driver, when compute gets there. Called within
/// a work of a device.
void CallInCudaQueue(std::function<void()> function);

}  // namespace heddle::runtime::testing
