// How long to wait before the next attempt to reconnect: the first comes soon, each later one after
// about twice the time, up to a limit. Every wait is drawn from its upper half, so that many
// clients of a server that came back do not all come at once. A path that comes up and dies at once
// is no success: only one that stayed up for the longest wait makes it forget.
#pragma once

#include <optional>

#include "base/random.hpp"
#include "feroce/rtrs/options.hpp"

namespace feroce::rtrs {

class Backoff {
public:
    Backoff(ReconnectOptions options, RandomSource& random)
        : options_(options), random_(random), wait_(options.first) {}

    // nullopt: the attempts are used up.
    std::optional<Duration> next();
    // The path was up for so long and then failed.
    void failed_after(Duration up) {
        if (up >= options_.longest) reset();
    }
    void reset();  // The user wants it now.

private:
    ReconnectOptions options_;
    RandomSource& random_;
    Duration wait_;
    int made_ = 0;
};

}  // namespace feroce::rtrs
