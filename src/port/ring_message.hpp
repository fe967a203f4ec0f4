// What members of a port group say to each other. They agree on a ring: the one that will write
// offers it with the memory's descriptor, the other one accepts it with the descriptor of its bell
// (an eventfd). And they tie themselves to each other (ties.hpp), with an end of a socket. All of
// it comes by the sockets of parcels (parcel.hpp), and is shorter than any parcel.
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "port/parcel.hpp"
#include "port/slot_table.hpp"

namespace feroce::port {

struct RingMessage {
    enum class Kind : std::uint32_t { Offer = 1, Acceptance = 2, Tie = 3 };
    static constexpr std::uint32_t kMagic = 0xfe0c'4c03;  // Changes with the layout of a ring.

    std::uint32_t magic = kMagic;
    Kind kind = Kind::Offer;
    std::uint32_t from = 0;  // The sender's slot.
    std::uint32_t reserved = 0;
    std::uint64_t incarnation = 0;  // Of the sender in that slot.
    std::uint64_t ring = 0;         // Which ring; its writer drew the number. Of a tie 0.
};
static_assert(sizeof(RingMessage) < sizeof(ParcelHeader));

// Empty if it is none.
std::optional<RingMessage> parse_ring_message(ByteView bytes);
// With one descriptor to the owner of a slot; false if it does not leave at once.
bool send_ring_message(int socket, const SlotTable& table, std::uint32_t to,
                       const RingMessage& message, int attached);

}  // namespace feroce::port
