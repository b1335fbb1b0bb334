/// \file
/// A TensorSink that writes a native checkpoint.
#pragma once

#include <memory>

#include "base/status.h"
#include "checkpoint/formats/format.h"

namespace heddle::checkpoint {

/// Creates a sink that writes whole tensors, in files of at most `request.max_shard_bytes` of
/// elements (a tensor is never split), and the manifest. Errors: kAlreadyExists, kInvalidArgument
/// (tensors that cannot be stored), those of writing.
Result<std::unique_ptr<TensorSink>> CreateNativeSink(SinkRequest request);

}  // namespace heddle::checkpoint
