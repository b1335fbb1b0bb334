/// \file
/// A file of torch.save as a source or a sink of tensors. Pickled code is never run.
///
/// A file holds a state dict: a dict (of dicts, of lists …) of tensors, whose keys are joined by
/// dots: "model.layers.0.weight". If the outermost dict has scalars but no tensor of its own, and a
/// dict under "state_dict", "model" or "module" (the first of them that exists), that dict is the
/// model; other entries, such as an optimizer's state or a loss, are ignored.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/formats/format.h"

namespace heddle::checkpoint {

inline constexpr size_t kMaxTensorName = 1024;  ///< Bytes of a tensor's name or storage's key.
inline constexpr size_t kMaxTensorNames = size_t{32} << 20;  ///< Bytes of all names.
inline constexpr size_t kMaxStateDepth = 32;                 ///< Depth of nested dicts.

/// Whether `path` is a file that any version of torch.save may have written. OpenPytorchFile
/// returns why it cannot read one.
bool IsPytorchFile(const std::string& path);

/// Opens a file of torch.save. Tensors may share storages and be strided views of them; tensors of
/// types that Heddle does not know are listed without a dtype. All tensors together may have at
/// most 64 times the file's bytes plus 1 GiB, because a view with stride 0 may claim any size.
///
/// Errors: kInvalidArgument (a pickle with other globals than a state dict needs, a format older
/// than zip archives, TorchScript, tar, a limit of pickle.h or zip.h is exceeded); kDataLoss
/// (damage, a tensor outside its storage, a storage that is too short), naming file and tensor.
Result<std::unique_ptr<TensorSource>> OpenPytorchFile(const std::string& path);

/// Creates `path` and returns a sink that writes it: an OrderedDict of contiguous tensors that
/// torch.load reads with and without weights_only. Finish leaves the file complete, but neither
/// synced nor renamed.
Result<std::unique_ptr<TensorSink>> CreatePytorchFile(const std::string& path,
                                                      std::vector<OutputTensor> tensors);

}  // namespace heddle::checkpoint
