// Packets that a capture has twice, as sent and as received, because both ends are on the machine
// that captured. They are told from packets that were sent again by the direction that the capture
// notes (FEROCE_PCAP, tcpdump -i any), or by an IPv4 id that is the same while the sender gives
// every packet another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <unordered_map>

#include "base/gid.hpp"
#include "wire/pcapng.hpp"

namespace feroce::cli {

class Twins {
public:
    // Packets in the order of the capture. True: the same packet was there before.
    bool is_second_sight(const wire::RoceDatagram& datagram);

private:
    static constexpr std::size_t kRemembered = 16'384;  // Packets, and senders.

    struct Sender {
        std::uint16_t id = 0;      // Of its last packet.
        std::uint32_t others = 0;  // How often two packets in a row had different ids.
        std::uint32_t same = 0;
    };
    bool ids_differ(const wire::RoceDatagram& datagram, bool known);
    void remember(std::uint64_t digest);
    void forget(std::uint64_t digest);

    std::unordered_map<std::uint64_t, std::uint32_t> sights_;  // Not yet seen a second time.
    std::deque<std::uint64_t> order_;
    std::map<Gid, Sender> senders_;
};

}  // namespace feroce::cli
