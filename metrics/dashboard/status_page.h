/// \file
/// The coordinator's status page. It polls /status of the server that it came from and draws the
/// plan, pipelines, loss, throughput and every change of plan; it loads nothing from other servers.
///
/// /status is one JSON object. A field that is absent is not drawn, and 64-bit numbers may be
/// strings, as protobuf writes them:
///
///     phase, reason, job_id   "training", "", "smoke"
///     generation, step, total_steps, loss, validation_loss, tokens_per_second,
///     step_seconds, predicted_step_seconds, seconds_left
///                             numbers
///     workers                 [{name, host, standing, applied_step, slowdown, measured_slowdown}]
///     plan or plan_json       an object, or its text:
///                             {workers: [name],
///                              pipelines: [{first_microbatch, microbatches,
///                                           stages: [{worker, first_segment, last_segment}]}]}
///     checkpoint_steps        [number]
///     history                 [[step, loss, tokens_per_second]], oldest first;
///                             if absent, the page draws what it has seen itself
///     changes                 [{time, generation, reason, seconds}], time in seconds of the epoch;
///                             if absent, the page lists the generations that it has seen itself
#pragma once

#include <string_view>

namespace heddle::metrics {

/// The page as HTML in UTF-8.
std::string_view StatusPage();

}  // namespace heddle::metrics
