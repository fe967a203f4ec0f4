// Limits that a card has and the soft device has not: a program that asks for more works here and
// not there. Each number says where it is written down.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

namespace feroce::lint {

struct Card {
    static constexpr std::uint32_t kAny = std::numeric_limits<std::uint32_t>::max();

    std::string_view name;
    std::uint32_t inline_max = kAny;  // max_inline_data that ibv_create_qp grants.
    std::uint32_t inline_max_datagram = kAny;
    std::uint32_t send_sges = kAny;
    std::uint32_t receive_sges = kAny;
    std::uint32_t shared_sges = kAny;  // Of a shared receive queue.
    std::uint32_t work_requests = kAny;
    std::uint32_t completions = kAny;  // Entries of a completion queue.
    std::uint32_t reads = kAny;        // READs and atomics outstanding on a queue pair.
    bool connects = true;              // RC, UC and XRC; else only UD.
    bool shares_receives = true;       // Has shared receive queues.
    bool has_atomics = true;
};

// Null if there is no such profile.
const Card* find_card(std::string_view name);

}  // namespace feroce::lint
