// Fault injection into what a process sends: FEROCE_FAULTS=drop=0.01,dup=0.01,reorder=0.01,
// corrupt=0.01,seed=7. The fate of the n-th packet of a flow (destination queue pair and direction,
// by order of first appearance) is a function of the seed alone; when it is sent is not.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "base/bytes.hpp"

namespace feroce::port {

struct FaultRates {
    double drop = 0;
    double duplicate = 0;
    double reorder = 0;
    double corrupt = 0;
    std::uint64_t seed = 1;
};

// Nothing if the text makes no sense: an unknown name, no number, a rate outside of [0, 1].
std::optional<FaultRates> parse_faults(std::string_view text);

class FaultInjector {
public:
    explicit FaultInjector(const FaultRates& rates) : rates_(rates) {}

    struct Fate {
        bool drop = false;
        bool duplicate = false;
        bool hold = false;            // Sent after the next packet.
        std::uint64_t flip_seed = 0;  // Not 0: corrupt by flip_bits().
    };
    Fate next(ByteView packet);

    // Flips 1 to 64 bits, which ones is a function of the seed.
    static void flip_bits(ByteSpan packet, std::uint64_t flip_seed);

private:
    using Flow = std::pair<std::uint32_t, bool>;  // Destination QPN; true for responses.
    struct Progress {
        std::uint64_t ordinal = 0;
        std::uint64_t packets = 0;
    };

    FaultRates rates_;
    std::map<Flow, Progress> flows_;
};

}  // namespace feroce::port
