// See flush_mark.hpp.
#include "block/flush_mark.hpp"

#include <algorithm>

namespace feroce::block {

int FlushMark::set(MarkState state) {
    if (state == state_) return 0;
    const int error = put(state);
    if (error == 0) state_ = state;
    return error;
}

bool FlushMark::flush_was_lost(MarkState found, const std::function<bool()>& is_fine) {
    const std::lock_guard lock(mutex_);
    state_ = found;
    if (found == MarkState::Clear) return false;
    // First the mark: what the kernel is about to tell it tells no successor.
    const bool asks = found == MarkState::InFlight && set(MarkState::Failed) == 0;
    if (asks && is_fine() && set(MarkState::Clear) == 0) return false;
    ++failures_;
    return true;
}

int FlushMark::begin() {
    const std::lock_guard lock(mutex_);
    const int error = state_ == MarkState::Failed ? 0 : set(MarkState::InFlight);
    if (error == 0)
        ++in_flight_;
    else
        ++failures_;
    return error;
}

void FlushMark::end(bool failed) {
    const std::lock_guard lock(mutex_);
    --in_flight_;
    if (failed) ++failures_;
    if (failures_ > recorded_)
        set(MarkState::Failed);
    else if (in_flight_ == 0)
        set(MarkState::Clear);
}

void FlushMark::recorded(std::uint64_t failures) {
    const std::lock_guard lock(mutex_);
    recorded_ = std::max(recorded_, failures);
    if (recorded_ < failures_) return;
    set(in_flight_ > 0 ? MarkState::InFlight : MarkState::Clear);
}

}  // namespace feroce::block
