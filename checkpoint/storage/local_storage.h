/// \file
/// Checkpoints in a folder of a local or shared file system.
///
/// ROOT/step-00000040/              a committed checkpoint: MANIFEST.json, one .h5 a writer and
///                                  tensors.h5, which shows them as whole tensors
/// ROOT/.tmp-step-00000080.g3/      a save in progress in generation 3, or one that was given up
/// ROOT/.trash-…                    a checkpoint on its way out
/// ROOT/.generation                 the newest generation that is known here
///
/// The commit is the rename of the temporary folder, after every byte of it is on storage.
/// Processes exclude each other by a lock of the folder: kUnavailable when another one holds it.
#pragma once

#include <memory>
#include <string>

#include "checkpoint/storage/storage.h"

namespace heddle::checkpoint {

Result<std::unique_ptr<Storage>> OpenLocalStorage(const std::string& root);

}  // namespace heddle::checkpoint
