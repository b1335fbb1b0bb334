// In the place of engine/machine/this_build.cc: this build drives cards.
#include "engine/machine/device_choice.h"

namespace heddle::machine {

const Support kThisBuild{.cuda = true};

}  // namespace heddle::machine
