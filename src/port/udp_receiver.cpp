#include "port/udp_receiver.hpp"

#include <netinet/in.h>
#include <netinet/udp.h>

#include <algorithm>
#include <cstring>

#include "port/address.hpp"
#include "port/socket_calls.hpp"

namespace feroce::port {

UdpReceiver::UdpReceiver(int fd, Capture* capture) : fd_(fd), capture_(capture) {
    if (fd_ < 0) return;
    buffers_ = std::make_unique<std::byte[]>(kBatch * kDatagramMax);
    for (std::size_t i = 0; i < kBatch; ++i) prepare(i);
    tell_destinations(true);  // Whoever had the socket before us may have done without.
}

void UdpReceiver::tell_destinations(bool told) {
    const int on = told || capture_ != nullptr ? 1 : 0;
    // Of the two, the one of the other family fails or means nothing.
    ::setsockopt(fd_, IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
    ::setsockopt(fd_, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on);
}

void UdpReceiver::prepare(std::size_t i) {
    vecs_[i] = {buffers_.get() + i * kDatagramMax, kDatagramMax};
    msghdr& header = headers_[i].msg_hdr;
    header.msg_name = &sources_[i];
    header.msg_namelen = sizeof sources_[i];
    header.msg_iov = &vecs_[i];
    header.msg_iovlen = 1;
    header.msg_control = &controls_[i];
    header.msg_controllen = sizeof controls_[i];
    header.msg_flags = 0;
}

int UdpReceiver::receive() {
    if (crowded_) return receive_messages(fd_, headers_);
    // Alone, a packet need not wait for the search for a second one.
    const long size = receive_message(fd_, headers_[0].msg_hdr, MSG_DONTWAIT);
    if (size < 0) return -1;
    headers_[0].msg_len = static_cast<unsigned>(size);
    return 1;
}

bool UdpReceiver::poll(Instant now, device::Engine& engine) {
    if (fd_ < 0) return false;
    const int count = receive();
    if (count <= 0) {
        found_in_a_row_ = 0;
        return false;
    }
    crowded_ = count > 1 || headers_[0].msg_len > kSmall || ++found_in_a_row_ >= kQueueShows;
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        if (i + 1 < static_cast<std::size_t>(count)) engine.expect(bytes_of(i + 1));
        deliver(now, engine, i);
        prepare(i);
    }
    return true;
}

void UdpReceiver::poll_merged(const Merged& take) {
    if (fd_ < 0) return;
    const int count = receive_messages(fd_, headers_);
    for (std::size_t i = 0; count > 0 && i < static_cast<std::size_t>(count); ++i) {
        Ancillary about = ancillary(i);
        about.datagram.bytes = ByteView(buffers_.get() + i * kDatagramMax, headers_[i].msg_len);
        take(about.datagram, about.segment_size);
        prepare(i);
    }
}

UdpReceiver::Ancillary UdpReceiver::ancillary(std::size_t i) {
    Ancillary out;
    if (sources_[i].ss_family == AF_INET) {
        const auto& from = reinterpret_cast<const sockaddr_in&>(sources_[i]);
        out.datagram.source = gid_of(from.sin_addr);
        out.datagram.source_port = ntohs(from.sin_port);
    } else {
        const auto& from = reinterpret_cast<const sockaddr_in6&>(sources_[i]);
        out.datagram.source = gid_of(from.sin6_addr);
        out.datagram.source_port = ntohs(from.sin6_port);
    }
    msghdr& header = headers_[i].msg_hdr;
    for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
        const auto read = [c](auto& value) { std::memcpy(&value, CMSG_DATA(c), sizeof value); };
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
            in_pktinfo info;
            read(info);
            out.datagram.destination = gid_of(info.ipi_addr);
        } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
            in6_pktinfo info;
            read(info);
            out.datagram.destination = gid_of(info.ipi6_addr);
        } else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) {
            read(out.datagram.traffic_class);
        } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS) {
            int traffic_class = 0;
            read(traffic_class);
            out.datagram.traffic_class = static_cast<std::uint8_t>(traffic_class);
        } else if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_GRO) {
            int size = 0;
            read(size);
            out.segment_size = static_cast<std::size_t>(std::max(size, 0));
        } else if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_RXQ_OVFL) {
            std::uint32_t count = 0;
            read(count);
            note_overflows(count);
        }
    }
    return out;
}

ByteView UdpReceiver::bytes_of(std::size_t i) const {
    return {buffers_.get() + i * kDatagramMax, headers_[i].msg_len};
}

void UdpReceiver::note_overflows(std::uint32_t count) {
    // Unsigned difference: the kernel's counter wraps at 32 bits.
    if (overflow_known_) overflows_ += count - overflow_mark_;
    overflow_mark_ = count;
    overflow_known_ = true;
}

void UdpReceiver::deliver(Instant now, device::Engine& engine, std::size_t i) {
    Ancillary about = ancillary(i);
    ByteView rest = bytes_of(i);
    const std::size_t size = about.segment_size == 0 ? rest.size() : about.segment_size;
    // Segments of one send carry the ids 0, 1, 2, ...
    for (std::uint16_t id = 0; !rest.empty(); ++id) {
        about.datagram.bytes = rest.first(std::min(size, rest.size()));
        about.datagram.id_hint = id;
        if (capture_ != nullptr)
            capture_->write({.address = {about.datagram.source, about.datagram.destination,
                                         about.datagram.source_port},
                             .ipv4_id = id,
                             .traffic_class = about.datagram.traffic_class,
                             .udp_payload = about.datagram.bytes,
                             .direction = wire::Direction::Inbound});
        rest = rest.subspan(about.datagram.bytes.size());
        engine.expect(rest);
        engine.receive(now, about.datagram);
    }
}

}  // namespace feroce::port
