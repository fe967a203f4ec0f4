// Suspects: peers that datagrams did not reach, as the network says (ICMP). Anybody can forge that,
// so the list is short, a peer is in it once, and it is only a reason to ask.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "base/gid.hpp"

namespace feroce::cm {

struct Suspect {
    Gid peer{};
    // By the peer's machine itself: it has no such port. Else by a router, or for another reason.
    bool refused = false;
};

class Suspects {
public:
    static constexpr std::size_t kMax = 16;

    void add(const Suspect& suspect) {  // One that finds no place is forgotten.
        for (Suspect& known : std::span(places_).first(count_)) {
            if (known.peer != suspect.peer) continue;
            known.refused |= suspect.refused;
            return;
        }
        if (count_ < kMax) places_[count_++] = suspect;
    }
    const Suspect* find(const Gid& peer) const {
        for (const Suspect& known : all())
            if (known.peer == peer) return &known;
        return nullptr;
    }
    std::span<const Suspect> all() const { return std::span(places_).first(count_); }
    bool empty() const { return count_ == 0; }
    void clear() { count_ = 0; }

private:
    std::array<Suspect, kMax> places_{};
    std::size_t count_ = 0;
};

}  // namespace feroce::cm
