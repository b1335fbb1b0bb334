/// \file
/// Writing a native checkpoint as one stream of elements, in memory that does not depend on the
/// model's size. A training job saves through checkpoint/writer.h instead, from memory that holds
/// the whole state.
#pragma once

#include <memory>

#include "base/status.h"
#include "checkpoint/formats/format.h"

namespace heddle::checkpoint {

/// Writes one HDF5 file whose chunks are contiguous pieces of about 1 MiB, compressed by
/// `request.threads` threads in batches, and the manifest. Errors: kAlreadyExists, kInvalidArgument
/// for tensors that cannot be stored, those of writing.
Result<std::unique_ptr<TensorSink>> CreateNativeSink(SinkRequest request);

}  // namespace heddle::checkpoint
