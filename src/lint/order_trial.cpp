#include "lint/order_trial.hpp"

namespace feroce::lint {

OrderTrial::Hold OrderTrial::next(std::uint64_t chance) {
    if (over()) return Hold::Nothing;
    ++trials_;
    return (chance & 1) != 0 ? Hold::AllButLast : Hold::All;
}

bool OrderTrial::reacted(Hold hold) {
    if (convinced_) return false;
    if (hold == Hold::All) to_last_bytes_ = 0;
    if (hold == Hold::AllButLast) ++to_last_bytes_;
    convinced_ = to_last_bytes_ >= kConvincing;
    return convinced_;
}

}  // namespace feroce::lint
