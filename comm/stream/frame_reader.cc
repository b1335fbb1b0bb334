#include "comm/stream/frame_reader.h"

#include <algorithm>
#include <cstring>

namespace heddle::comm {

namespace {
constexpr size_t kStageBytes = size_t{8} << 10;
constexpr size_t kDirectBytes = 4096;  ///< From here on payload is read straight into its buffer.
}  // namespace

FrameReader::FrameReader(uint32_t generation) : generation_(generation), stage_(kStageBytes) {}

Result<FrameReader::Step> FrameReader::Advance(ByteSource& source) {
  if (in_frame_) {
    return ReadPayload(source);
  }
  if (stage_end_ - stage_begin_ < sizeof(FrameHeader)) {
    return FillStage(source);
  }
  std::memcpy(&header_, stage_.data() + stage_begin_, sizeof(FrameHeader));
  stage_begin_ += sizeof(FrameHeader);
  HEDDLE_RETURN_IF_ERROR(CheckFrame(header_, generation_));
  left_ = header_.length;
  target_ = nullptr;
  in_frame_ = true;
  return Step::kBegan;
}

Result<FrameReader::Step> FrameReader::FillStage(ByteSource& source) {
  if (stage_begin_ > 0) {
    std::memmove(stage_.data(), stage_.data() + stage_begin_, stage_end_ - stage_begin_);
    stage_end_ -= stage_begin_;
    stage_begin_ = 0;
  }
  HEDDLE_ASSIGN_OR_RETURN(const size_t read, source.Read(std::span(stage_).subspan(stage_end_)));
  stage_end_ += read;
  return read > 0 ? Step::kMoved : Step::kStarved;
}

Result<FrameReader::Step> FrameReader::ReadPayload(ByteSource& source) {
  const size_t staged = std::min(stage_end_ - stage_begin_, left_);
  Step step = Step::kMoved;
  if (staged > 0) {
    if (target_ != nullptr) {
      std::memcpy(target_, stage_.data() + stage_begin_, staged);
      target_ += staged;
    }
    stage_begin_ += staged;
    left_ -= staged;
  } else if (left_ > 0 && (target_ == nullptr || left_ < kDirectBytes)) {
    return FillStage(source);
  } else if (left_ > 0) {
    HEDDLE_ASSIGN_OR_RETURN(const size_t read, source.Read({target_, left_}));
    target_ += read;
    left_ -= read;
    step = read > 0 ? Step::kMoved : Step::kStarved;
  }
  if (left_ == 0) {
    in_frame_ = false;
    return Step::kEnded;
  }
  return step;
}

}  // namespace heddle::comm
