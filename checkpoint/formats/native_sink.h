/// \file
/// A native checkpoint as a sink of tensors.
#pragma once

#include <memory>

#include "base/status.h"
#include "checkpoint/formats/format.h"

namespace heddle::checkpoint {

/// Writes whole tensors, in files of at most `request.max_shard_bytes` of elements (a tensor is
/// never cut), and the manifest. Errors: kAlreadyExists, kInvalidArgument for tensors that cannot
/// be stored, those of writing.
Result<std::unique_ptr<TensorSink>> CreateNativeSink(SinkRequest request);

}  // namespace heddle::checkpoint
