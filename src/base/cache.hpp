// The unit in which a processor fetches memory. Only a matter of speed: nothing depends on its being
// right.
#pragma once

#include <cstddef>

namespace feroce {

inline constexpr std::size_t kCacheLine = 64;

}  // namespace feroce
