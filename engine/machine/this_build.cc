#include "engine/machine/device_choice.h"

namespace heddle::machine {

#ifdef HEDDLE_CUDA_MAJOR
const Support kThisBuild{.cuda = true, .cuda_major = HEDDLE_CUDA_MAJOR};
#else
const Support kThisBuild{.cuda = false};
#endif

}  // namespace heddle::machine
