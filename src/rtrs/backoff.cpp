// See backoff.hpp.
#include "rtrs/backoff.hpp"

#include <algorithm>

namespace feroce::rtrs {

std::optional<Duration> Backoff::next() {
    if (options_.attempts >= 0 && made_ >= options_.attempts) return std::nullopt;
    ++made_;
    const Duration half = wait_ / 2;
    const auto spread = static_cast<std::uint64_t>(std::max<Duration::rep>(half.count(), 1));
    const Duration wait =
        wait_ - half + Duration(static_cast<Duration::rep>(random_.next() % spread));
    wait_ = std::min(wait_ * 2, options_.longest);
    return wait;
}

void Backoff::reset() {
    made_ = 0;
    wait_ = options_.first;
}

}  // namespace feroce::rtrs
