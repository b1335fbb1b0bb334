/// \file
/// One file of torch.save as a source or a sink of tensors. Pickled code is never run.
///
/// A file holds a state dict: a dict (of dicts, of lists …) of tensors, whose keys are joined by
/// dots: "model.layers.0.weight". When the outermost dict has no tensor of its own but scalars, and
/// a dict under "state_dict", "model" or "module" (the first of them that is there), that one is
/// the model; what lies beside it, such as an optimizer's state or a loss, is not part of it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/formats/format.h"

namespace heddle::checkpoint {

inline constexpr size_t kMaximumTensorName = 1024;  ///< Bytes; of a storage's key, too.
inline constexpr size_t kMaximumTensorNames = size_t{32} << 20;  ///< Bytes of all names.
inline constexpr size_t kMaximumStateDepth = 32;                 ///< Of dicts in dicts.

/// Whether `path` is a file that torch.save may have written, in whatever version; OpenPytorchFile
/// says why it does not read one.
bool IsPytorchFile(const std::string& path);

/// Tensors may share storages, and be strided views of them; elements of other types than ours are
/// listed without a dtype. All tensors together have at most 64 times the file's bytes and 1 GiB
/// more: a view with stride 0 may claim any size.
///
/// Errors: kInvalidArgument for a pickle with other globals than a state dict needs, a file of the
/// time before zip archives, TorchScript, tar, and what pickle.h and zip.h bound; kDataLoss for
/// damage, a tensor outside its storage or a storage that is too short, by file and tensor.
Result<std::unique_ptr<TensorSource>> OpenPytorchFile(const std::string& path);

/// A sink that creates `path`: an OrderedDict of contiguous tensors that torch.load reads, with and
/// without weights_only. Finish leaves it complete, neither synced nor renamed.
Result<std::unique_ptr<TensorSink>> CreatePytorchFile(const std::string& path,
                                                      std::vector<OutputTensor> tensors);

}  // namespace heddle::checkpoint
