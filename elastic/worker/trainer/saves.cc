#include "elastic/worker/trainer/saves.h"

#include <algorithm>
#include <atomic>
#include <memory>

#include "base/log.h"
#include "checkpoint/format/manifest.h"

namespace heddle::elastic {

std::vector<program::StateBox> WrittenBoxes(const graph::Graph& graph, const Lowered& lowered) {
  std::vector<program::StateBox> boxes =
      program::OwnedLayout(graph, lowered.plan)[static_cast<size_t>(lowered.rank)];
  std::vector<size_t> position(graph.parameters.size(), 0);
  const auto& instructions = lowered.training.instructions;
  for (size_t i = lowered.training.vote_index; i < instructions.size(); ++i) {
    if (instructions[i].code == program::Code::kUpdate) {
      position[static_cast<size_t>(instructions[i].parameter)] = i;
    }
  }
  std::ranges::stable_sort(boxes, {}, [&](const program::StateBox& box) {
    return position[static_cast<size_t>(box.parameter)];
  });
  return boxes;
}

checkpoint::StoredBox StoredBoxOf(const graph::Graph& graph, const program::StateBox& box) {
  const graph::Parameter& parameter = graph.parameter(box.parameter);
  return {.name = parameter.name,
          .role = std::string(program::StateRoleName(box.role)),
          .dtype = graph.master_dtype(),
          .global_shape = parameter.shape,
          .box = box.box};
}

Result<StateViews> ViewsOf(const JobContext& context,
                           const Generation& generation,
                           bool checkpoint) {
  StateViews views;
  for (const program::StateBox& box : generation.written) {
    checkpoint::BoxView& view = views.boxes.emplace_back();
    view.stored = StoredBoxOf(context.graph, box);
    if (checkpoint && context.options.job.checkpoint.moments == job::MomentStorage::kBF16 &&
        box.role != program::StateRole::kMaster) {
      view.stored.stored_as = DType::kBF16;
    }
    view.bytes = generation.state->InPlace(box.parameter, box.role, box.box);
    if (view.bytes.empty()) {
      Bytes& copy = views.copies.emplace_back(
          static_cast<size_t>(ElementCount(box.box.extent) * SizeOf(context.graph.master_dtype())));
      HEDDLE_RETURN_IF_ERROR(generation.state->Read(box.parameter, box.role, box.box, copy));
      view.bytes = copy;
    }
  }
  return views;
}

// All workers decide alike, by the flags of the vote.
bool SaveIsDue(const JobContext& context, const Generation& generation) {
  const int64_t step = generation.applied_step;
  const bool due = CheckpointDue(context.options.policy, step);
  if (!due || !generation.flags.saving || step == context.options.job.steps ||
      context.options.job.checkpoint.when_busy == job::BusyPolicy::kWait) {
    return due;
  }
  context.figures.skipped_checkpoints.Add();
  if (generation.lowered->rank == 0) {
    Saved skipped;
    skipped.part.set_step(step);
    skipped.part.set_generation(generation.number);
    skipped.part.set_skipped(true);
    context.options.post(skipped);
  }
  return false;
}

namespace {

/// Tag of the barrier, other than those of Programs, of moves and of snapshots in memory.
constexpr uint64_t kSaveTag = uint64_t{1} << 59;

void BeginSave(const JobContext& context, Generation& generation) {
  const int64_t step = generation.saved_step = generation.applied_step;
  const int64_t number = generation.number;
  // An error while Snapshot waits is reported twice, by the writer and by Snapshot.
  auto reported = std::make_shared<std::atomic<bool>>(false);
  auto report = [reported, post = context.options.post, step, number](
                    const Result<checkpoint::FilePart>& part,
                    const checkpoint::SnapshotInfo& info) {
    if (reported->exchange(true)) {
      return;
    }
    Saved saved;
    saved.part.set_step(step);
    saved.part.set_generation(number);
    saved.part.set_stall_seconds(info.stall_seconds);
    if (part.ok()) {
      saved.part.set_part(checkpoint::EncodePart(*part));
    } else {
      saved.part.set_error(part.status().ToString());
    }
    post(saved);
  };
  const auto views = ViewsOf(context, generation, /*checkpoint=*/true);
  if (!views.ok()) {
    return report(views.status(), {});
  }
  const Progress::Wait waits(context.progress);  // It waits for storage and does not hang.
  const auto snapshot =
      context.writer->Snapshot({.step = step,
                                .generation = number,
                                .wait = std::chrono::seconds(60),
                                .deferred = true,
                                .background = context.options.job.checkpoint.background},
                               views->boxes, report);
  if (!snapshot.ok()) {
    report(snapshot.status(), {});
  } else if (!views->copies.empty()) {
    context.writer->FinishCopy();
  }
}

// Waits for the saves of all workers. A slow disk may hold one worker up for minutes; the others
// wait here and not for a message of the next step, which would time out.
void AwaitSaves(const JobContext& context, Generation& generation) {
  const Progress::Wait waits(context.progress);
  const Status all = generation.group->Barrier(
      {.group = {},
       .tag = kSaveTag,
       .deadline = After(checkpoint::kDirectTimeout + context.options.policy.stop_timeout)});
  if (!all.ok()) {
    LogWarning("the wait for the others' saves of step {} was cut: {}", generation.applied_step,
               all.message());
  }
}

}  // namespace

void Save(const JobContext& context, Generation& generation) {
  // A worker without parameters has nothing to save.
  if (!generation.lowered->training.parameters.empty()) {
    BeginSave(context, generation);
  }
  if (!context.options.job.checkpoint.background) {
    AwaitSaves(context, generation);
  }
}

void SaveAtRest(const JobContext& context, Generation& generation) {
  if (generation.saved_step != generation.applied_step &&
      !generation.lowered->training.parameters.empty()) {
    BeginSave(context, generation);
    context.writer->FinishCopy();
  }
}

}  // namespace heddle::elastic
