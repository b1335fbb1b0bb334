#include "engine/machine/device_choice.h"

namespace heddle::machine {

#ifdef HEDDLE_WITH_CUDA
const Support kThisBuild{.cuda = true};
#else
const Support kThisBuild{.cuda = false};
#endif

}  // namespace heddle::machine
