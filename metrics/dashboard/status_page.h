/// \file
/// The coordinator's status page. It polls /status of the server it came from and draws plan,
/// pipelines, loss, throughput and every change of plan; it loads nothing from elsewhere.
///
/// /status is one JSON object; a field that is absent is not drawn, and 64-bit numbers may be
/// strings (as protobuf writes them):
///
///     phase, reason, job_id          "training", "", "smoke"
///     generation, step, total_steps  numbers
///     loss, validation_loss, tokens_per_second, step_seconds, predicted_step_seconds, seconds_left
///     workers                        [{name, host, standing, applied_step, slowdown,
///                                    measured_slowdown}]
///     plan or plan_json              an object, or its text: {workers: [name], pipelines:
///                                    [{first_microbatch, microbatches,
///                                      stages: [{worker, first_segment, last_segment}]}]}
///     checkpoint_steps               [number]
///     history                        [[step, loss, tokens_per_second]], oldest first; without it
///     the page
///                                    draws what it saw itself
///     changes                        [{time, generation, reason, seconds}], time in seconds of the
///     epoch;
///                                    without it the page lists the generations it saw itself
#pragma once

#include <string_view>

namespace heddle::metrics {

/// The page as UTF-8 HTML.
std::string_view StatusPage();

}  // namespace heddle::metrics
