// How two members of a port group agree on a ring. The one that will write offers it with the
// memory's descriptor, the other one accepts it with the descriptor of its bell (an eventfd). Both
// come by the sockets of parcels (parcel.hpp), and are shorter than any parcel.
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "port/parcel.hpp"
#include "port/slot_table.hpp"

namespace feroce::port {

struct RingMessage {
    enum class Kind : std::uint32_t { Offer = 1, Acceptance = 2 };
    static constexpr std::uint32_t kMagic = 0xfe0c'4c01;  // Changes with the layout of a ring.

    std::uint32_t magic = kMagic;
    Kind kind = Kind::Offer;
    std::uint32_t from = 0;  // The sender's slot.
    std::uint32_t reserved = 0;
    std::uint64_t incarnation = 0;  // Of the sender in that slot.
    std::uint64_t ring = 0;         // Which ring; its writer drew the number.
};
static_assert(sizeof(RingMessage) < sizeof(ParcelHeader));

// Empty if it is none.
std::optional<RingMessage> parse_ring_message(ByteView bytes);
// With one descriptor to the owner of a slot; false if it does not leave at once.
bool send_ring_message(int socket, const SlotTable& table, std::uint32_t to,
                       const RingMessage& message, int attached);

}  // namespace feroce::port
