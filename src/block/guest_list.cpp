// See guest_list.hpp.
#include "block/guest_list.hpp"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

namespace feroce::block {

namespace {

constexpr Error kNoNetwork{EINVAL,
                           "clients are given as addresses or networks, such as 10.0.0.0/8"};

bool same_bits(const std::array<std::uint8_t, 16>& a, const std::array<std::uint8_t, 16>& b,
               unsigned bits) {
    for (unsigned i = 0; i < bits; ++i) {
        const auto mask = static_cast<std::uint8_t>(0x80 >> i % 8);
        if (((a[i / 8] ^ b[i / 8]) & mask) != 0) return false;
    }
    return true;
}

}  // namespace

bool GuestList::read_address(std::string_view text, Network& out) {
    if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
    const std::string host(text);
    for (const int family : {AF_INET, AF_INET6}) {
        if (::inet_pton(family, host.c_str(), out.bytes.data()) != 1) continue;
        out.family = family;
        out.bits = family == AF_INET ? 32 : 128;
        return true;
    }
    return false;
}

Result<GuestList> GuestList::parse(const std::vector<std::string>& names,
                                   const std::vector<std::string>& networks) {
    GuestList list;
    list.names_ = names;
    for (const std::string& text : networks) {
        const std::string_view all = text;
        const std::size_t slash = all.find('/');
        Network network;
        if (!read_address(all.substr(0, slash), network)) return kNoNetwork;
        if (slash != std::string_view::npos) {
            const std::string_view digits = all.substr(slash + 1);
            unsigned bits = 0;
            const auto read = std::from_chars(digits.begin(), digits.end(), bits);
            if (read.ec != std::errc() || read.ptr != digits.end() || bits > network.bits)
                return kNoNetwork;
            network.bits = bits;
        }
        list.networks_.push_back(network);
    }
    return list;
}

bool GuestList::admits_name(std::string_view name) const {
    return names_.empty() || std::any_of(names_.begin(), names_.end(), [&](std::string_view one) {
               if (!one.ends_with('*')) return one == name;
               return name.starts_with(one.substr(0, one.size() - 1));
           });
}

bool GuestList::admits_address(std::string_view address) const {
    if (networks_.empty()) return true;
    Network peer;
    if (!read_address(address, peer)) return false;
    return std::any_of(networks_.begin(), networks_.end(), [&](const Network& network) {
        return network.family == peer.family && same_bits(network.bytes, peer.bytes, network.bits);
    });
}

}  // namespace feroce::block
