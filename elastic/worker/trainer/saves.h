/// \file
/// Saves of checkpoints: the boxes that this worker writes, when a save is due, and how it begins.
#pragma once

#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "elastic/worker/trainer/generation.h"
#include "elastic/worker/trainer/job_context.h"

namespace heddle::elastic {

/// The boxes of state that this worker writes, in the order in which a step changes them.
std::vector<program::StateBox> WrittenBoxes(const graph::Graph& graph, const Lowered& lowered);
checkpoint::StoredBox StoredBoxOf(const graph::Graph& graph, const program::StateBox& box);
/// The boxes in `generation.written` and their elements. Elements that do not lie in the host's memory
/// are copied, and the views are of the copies, which must live until the snapshot has been taken.
struct StateViews {
  std::vector<checkpoint::BoxView> boxes;
  std::vector<Bytes> copies;  ///< Empty: all boxes are read in place.
};
/// Views of the boxes in `generation.written`. `checkpoint`: the job may have moments stored as
/// BF16; otherwise everything is stored exactly. Errors: the device's.
Result<StateViews> ViewsOf(const JobContext& context,
                           const Generation& generation,
                           bool checkpoint);

/// True if a save is due after the last applied step. All workers decide alike. Counts and reports
/// a save that is skipped because a worker still writes the last one.
bool SaveIsDue(const JobContext& context, const Generation& generation);
/// Begins a save of the state, whose outcome is posted as Saved. If the job saves in the
/// foreground, waits until the saves of all workers have ended.
void Save(const JobContext& context, Generation& generation);
/// Saves the state of a run that has stopped, unless a save of its last step was begun. Waits for
/// the copy of the state, but not for other workers. The outcome is posted as Saved.
void SaveAtRest(const JobContext& context, Generation& generation);

}  // namespace heddle::elastic
