/// \file
/// Checkpoints: what this worker writes of its state, when one is due, and its start.
#pragma once

#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "elastic/worker/trainer/generation.h"
#include "elastic/worker/trainer/job_context.h"

namespace heddle::elastic {

/// In the order in which a step changes them.
std::vector<program::StateBox> WrittenBoxes(const graph::Graph& graph, const Lowered& lowered);
checkpoint::StoredBox StoredBoxOf(const graph::Graph& graph, const program::StateBox& box);
/// `generation.written` and its elements. What does not lie in the host's memory is copied, and the
/// copy is read instead: whoever takes a snapshot of it keeps it until the snapshot's copy is
/// finished.
struct StateViews {
  std::vector<checkpoint::BoxView> boxes;
  std::vector<Bytes> copies;  ///< Empty: all is read where it lies.
};
/// A checkpoint's moments may be rounded. Errors: the device's.
Result<StateViews> ViewsOf(const JobContext& context,
                           const Generation& generation,
                           bool checkpoint);

/// Whether one is due after the step applied last: all workers decide alike.
bool SaveIsDue(const JobContext& context, const Generation& generation);
/// Begins one; posts Saved. Where the job saves in the foreground it waits for all workers.
void Save(const JobContext& context, Generation& generation);
/// The same between two runs, where none was begun after that step; waits for nobody.
void SaveAtRest(const JobContext& context, Generation& generation);

}  // namespace heddle::elastic
