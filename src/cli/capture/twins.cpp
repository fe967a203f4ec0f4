#include "cli/capture/twins.hpp"

#include <string_view>

namespace feroce::cli {
namespace {

std::uint64_t mix(std::uint64_t digest, std::uint64_t value) {
    digest ^= value + 0x9e37'79b9'7f4a'7c15 + (digest << 6) + (digest >> 2);
    return digest * 0xff51'afd7'ed55'8ccd;
}

std::uint64_t digest_of(ByteView bytes) {
    return std::hash<std::string_view>{}(
        {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

// Without what a receiver of our own does not know, or a switch changes.
std::uint64_t digest_of(const wire::RoceDatagram& datagram) {
    std::uint64_t digest = digest_of(std::as_bytes(std::span(datagram.address.source.raw)));
    digest = mix(digest, digest_of(std::as_bytes(std::span(datagram.address.destination.raw))));
    digest = mix(digest, datagram.address.source_port);
    return mix(digest, digest_of(datagram.udp_payload));
}

}  // namespace

void Twins::remember(std::uint64_t digest) {
    ++sights_[digest];
    order_.push_back(digest);
    if (order_.size() <= kRemembered) return;
    forget(order_.front());
    order_.pop_front();
}

void Twins::forget(std::uint64_t digest) {
    const auto at = sights_.find(digest);
    if (at != sights_.end() && --at->second == 0) sights_.erase(at);
}

// Whether an equal id means an equal packet. Copies say nothing about it.
bool Twins::ids_differ(const wire::RoceDatagram& datagram, bool known) {
    if (!datagram.address.source.is_v4()) return false;
    if (senders_.size() >= kRemembered) senders_.clear();
    Sender& sender = senders_[datagram.address.source];
    if (!known) {
        const bool other = sender.id != datagram.ipv4_id;
        ++(other ? sender.others : sender.same);
        sender.id = datagram.ipv4_id;
    }
    return sender.others > 8 * std::uint64_t{sender.same};
}

bool Twins::is_second_sight(const wire::RoceDatagram& datagram) {
    std::uint64_t digest = digest_of(datagram);
    if (datagram.direction == wire::Direction::Outbound) {
        remember(digest);
        return false;
    }
    const bool unknown = datagram.direction == wire::Direction::Unknown;
    if (unknown) digest = mix(digest, datagram.ipv4_id);
    const bool known = sights_.count(digest) != 0;
    const bool second = unknown ? ids_differ(datagram, known) && known : known;
    if (second)
        forget(digest);
    else if (unknown)
        remember(digest);
    return second;
}

}  // namespace feroce::cli
