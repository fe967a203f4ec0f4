// FarOutbound: what a requester keeps while copies to or from far memory are on their way. Made
// when the first one is needed; a requester that meets only host memory has none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "transport/copies.hpp"
#include "transport/gather_ahead.hpp"
#include "transport/reason.hpp"

namespace feroce::transport::rc {

struct FarOutbound final : FarWork {
    // Answers on their way to memory beyond which no more are asked for.
    static constexpr std::size_t kLandingMax = 2 * 1024 * 1024;

    // A part of an answer, on its way to memory.
    struct Landing {
        std::uint64_t index = 0;
        std::uint64_t offset = 0;
        std::uint32_t filled = 0;
        std::uint32_t capacity = 0;
        FarList list;
        CopyGroupPtr group;
        bool started = false;

        bool landed() const { return started && group->is_over(); }
    };

    GatherAhead sources;
    std::deque<Landing> landings;  // In the order of the requests.
    std::size_t landing_bytes = 0;
    // A bind or an invalidation at the position is executed, but copies started before this one may
    // still write through the old key.
    std::optional<mem::CopyToken> local_until;
    // The queue pair fails when all that is answered is in memory.
    std::optional<Reason> failure;
};

}  // namespace feroce::transport::rc
