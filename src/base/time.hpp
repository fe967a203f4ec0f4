// Instant and Duration, which public headers speak too.
#pragma once

#include "feroce/time.hpp"  // IWYU pragma: export
