// A reading of the machine's clock is not an Instant: time comes in from the driver.
// expect: could not convert|cannot convert|no viable conversion|conversion from
#include "base/time.hpp"

feroce::Instant now() {
#ifdef MISTAKE
    return std::chrono::steady_clock::now();
#else
    return feroce::Instant{};
#endif
}
