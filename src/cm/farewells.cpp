#include "cm/farewells.hpp"

#include <algorithm>

namespace feroce::cm {
namespace {

using namespace std::chrono_literals;

constexpr Duration kFirstGap = 100ms;  // Doubles: the last one leaves 1.5 s after the first.
constexpr int kBurst = 64;
constexpr Duration kBurstGap = 1ms;

}  // namespace

void Farewells::add(Instant now, const Bond& bond) {
    if (farewells_.size() >= kMax) return;
    farewells_.push_back({bond, now, 0});
    next_ = std::min(next_, now);
}

Instant Farewells::next_wakeup() const {
    return next_;
}

std::uint64_t Farewells::run(Instant now, MadPort& port) {
    if (now < next_) return 0;
    int burst = 0;
    next_ = kNever;
    for (Farewell& f : farewells_) {
        if (f.due <= now && burst < kBurst) {
            ++burst;
            const Bond& b = f.bond;
            port.send(b.local, b.remote,
                      wire::make_cm_mad(b.local_id.raw, wire::CmDreq{.local_id = b.local_id,
                                                                     .remote_id = b.remote_id,
                                                                     .remote_qpn = b.remote_qpn}));
            f.due = now + kFirstGap * (1 << f.sent++);
        }
        if (f.sent < kTimes) next_ = std::min(next_, std::max(f.due, now + kBurstGap));
    }
    std::erase_if(farewells_, [](const Farewell& f) { return f.sent == kTimes; });
    return static_cast<std::uint64_t>(burst);
}

}  // namespace feroce::cm
