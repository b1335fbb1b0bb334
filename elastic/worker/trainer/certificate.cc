#include "elastic/worker/trainer/certificate.h"

#include <algorithm>
#include <bit>

#include "base/bytes.h"
#include "base/hash.h"
#include "engine/program/slices.h"
#include "engine/program/stages.h"

namespace heddle::elastic {
namespace {

// Hashes all that decides the next step beside parameters and moments. The random streams and the
// order of samples are functions of the job's seed and the step.
uint64_t IdentityOf(const JobContext& context, int64_t step) {
  const job::JobConfig& job = context.options.job;
  ByteWriter out;
  out.PutString(context.options.endpoint_options.config.job);
  out.Put(step);
  out.Put(job.seed);
  out.Put(context.dataset->fingerprint());
  out.Put(step * job.batch.global);
  out.Put(job::LearningRate(job.optimizer, step + 1, job.steps));
  return Hash64(out.bytes());
}

}  // namespace

Result<wire::Certificate> CertificateOf(const JobContext& context, const Generation& generation) {
  wire::Certificate certificate;
  certificate.set_step(generation.applied_step);
  certificate.set_identity(IdentityOf(context, generation.applied_step));
  const std::vector<std::vector<int>> segments = program::ParameterSegments(context.graph);
  const program::Plan& plan = generation.lowered->plan;
  const std::vector<int32_t> first = program::FirstKeptPieces(context.graph, plan);
  for (const graph::ParameterId parameter : generation.state->parameters()) {
    const auto index = static_cast<size_t>(parameter);
    int32_t number = first[index];
    for (const program::HeldPiece& piece :
         program::KeptPiecesOf(context.graph, plan, parameter, segments[index])) {
      if (std::ranges::count(piece.holders, generation.lowered->rank) > 0) {
        uint64_t digest = 0;
        if (piece.holders.size() > 1) {
          HEDDLE_ASSIGN_OR_RETURN(digest, generation.state->Digest(parameter, piece.box));
        }
        certificate.add_parameters(number);
        certificate.add_digests(digest);
      }
      ++number;
    }
    context.progress.Note();
  }
  return certificate;
}

Status TellDigestsIfDue(const JobContext& context, const Generation& generation) {
  if (!DigestsDue(context.options.policy, generation.applied_step)) {
    return Status::Ok();
  }
  const Time begun = Now();
  StateDigested event;
  event.generation = generation.number;
  HEDDLE_ASSIGN_OR_RETURN(event.certificate, CertificateOf(context, generation));
  context.figures.digest_seconds.Observe(Seconds(Now() - begun));
  context.options.post(event);
  return Status::Ok();
}

}  // namespace heddle::elastic
