#include "port/udp_sender.hpp"

#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "port/address.hpp"
#include "port/interfaces.hpp"
#include "port/socket_calls.hpp"

namespace feroce::port {
namespace {

using transport::TransmitRun;

constexpr std::size_t kBatchMax = 16;
constexpr int kSendBufferBytes = 4 * 1024 * 1024;
constexpr int kDefaultHopLimit = 64;

void set_option(int fd, int level, int name, int value) {
    ::setsockopt(fd, level, name, &value, sizeof value);
}

// One message of a sendmmsg call with room for all it points to.
struct Message {
    SocketAddress to;
    iovec vec;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(std::uint16_t)) + 2 * CMSG_SPACE(sizeof(int))];
};

class ControlWriter {
public:
    ControlWriter(msghdr& header, char* buffer) : header_(header), next_(buffer) {
        header_.msg_control = buffer;
        header_.msg_controllen = 0;
    }

    template <class T>
    void add(int level, int type, T value) {
        std::memset(next_, 0, CMSG_SPACE(sizeof value));  // The padding, for valgrind.
        auto* c = reinterpret_cast<cmsghdr*>(next_);
        c->cmsg_level = level;
        c->cmsg_type = type;
        c->cmsg_len = CMSG_LEN(sizeof value);
        std::memcpy(CMSG_DATA(c), &value, sizeof value);
        next_ += CMSG_SPACE(sizeof value);
        header_.msg_controllen += CMSG_SPACE(sizeof value);
    }

private:
    msghdr& header_;
    char* next_;
};

struct Target {
    std::uint32_t scope = 0;
    std::uint16_t port = 0;
    std::uint16_t segment_size = 0;  // 0: not segmented.
};

void fill(const TransmitRun& run, const Target& target, ByteSpan bytes, Message& m, msghdr& out) {
    m.to = socket_address(run.path.destination, target.port, target.scope);
    m.vec = {bytes.data(), bytes.size()};
    out = {};
    out.msg_name = &m.to.any;
    out.msg_namelen = m.to.length;
    out.msg_iov = &m.vec;
    out.msg_iovlen = 1;
    ControlWriter control(out, m.control);
    if (target.segment_size != 0) control.add(SOL_UDP, UDP_SEGMENT, target.segment_size);
    const bool v4 = run.path.destination.is_v4();
    if (run.path.traffic_class != 0)
        control.add(v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_TOS : IPV6_TCLASS,
                    int{run.path.traffic_class});
    if (run.path.hop_limit != kDefaultHopLimit && run.path.hop_limit != 0)
        control.add(v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_TTL : IPV6_HOPLIMIT,
                    int{run.path.hop_limit});
}

// As sendmmsg(), which costs a lone message something, as sendmsg() does a plain one.
int send_some(int fd, std::span<mmsghdr> messages) {
    if (messages.size() > 1) return send_messages(fd, messages);
    const msghdr& lone = messages[0].msg_hdr;
    const long sent = lone.msg_controllen == 0 ? send_plain(fd, lone, MSG_DONTWAIT)
                                               : send_message(fd, lone, MSG_DONTWAIT);
    return sent < 0 ? -1 : 1;
}

std::uint32_t interface_of(const Gid& gid) {
    for (const device::Interface& interface : list_interfaces({}))
        for (const Gid& own : interface.gids)
            if (own == gid) return interface.index;
    return 0;
}

}  // namespace

UdpSender::Address& UdpSender::address_of(const Gid& source) {
    for (Address& a : addresses_)
        if (a.gid == source) return a;
    Address& added = addresses_.emplace_back();
    added.gid = source;
    added.scope = interface_of(source);
    return added;
}

UdpSender::Outlet* UdpSender::outlet_for(Address& address, const TransmitRun& run) {
    Outlet& outlet = address.outlets[run.destination_slot % kSocketsPerAddress];
    if (!outlet.fd.valid()) outlet = open_outlet(address);
    return outlet.fd.valid() ? &outlet : nullptr;
}

UdpSender::Outlet UdpSender::open_outlet(const Address& address) {
    const bool v4 = address.gid.is_v4();
    Outlet out;
    out.fd = Fd(::socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!out.fd.valid()) return Outlet();
    const int fd = out.fd.get();
    set_option(fd, SOL_SOCKET, SO_SNDBUF, kSendBufferBytes);
    set_option(fd, SOL_SOCKET, SO_RCVBUF, 0);  // Nobody has a reason to send here.
    if (v4) {
        set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
        set_option(fd, IPPROTO_IP, IP_TTL, kDefaultHopLimit);
        set_option(fd, IPPROTO_IP, IP_MULTICAST_TTL, kDefaultHopLimit);
        ip_mreqn through{};
        through.imr_ifindex = static_cast<int>(address.scope);
        ::setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &through, sizeof through);
    } else {
        set_option(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
        set_option(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, kDefaultHopLimit);
        set_option(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, kDefaultHopLimit);
        set_option(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, static_cast<int>(address.scope));
    }
    // RoCE v2 asks for source ports from 0xc000 up; any other works if those are taken.
    bool bound = false;
    for (int attempt = 0; attempt < 17 && !bound; ++attempt) {
        const auto wanted = static_cast<std::uint16_t>(attempt < 16 ? 0xc000 | random_.next() : 0);
        const SocketAddress own = socket_address(address.gid, wanted, address.scope);
        bound = ::bind(fd, &own.any, own.length) == 0;
    }
    SocketAddress own;
    own.length = sizeof own.v6;
    if (!bound || ::getsockname(fd, &own.any, &own.length) != 0) return Outlet();
    out.port = ntohs(v4 ? own.v4.sin_port : own.v6.sin6_port);
    return out;
}

wire::DatagramAddress UdpSender::wire_address(const Outlet& outlet, const TransmitRun& run) const {
    return {run.path.source, run.path.destination, outlet.port, port_};
}

int UdpSender::send_error(const transport::Path& path) const {
    for (std::size_t i = 0; i < trouble_count_; ++i)
        if (troubles_[i].source == path.source && troubles_[i].destination == path.destination)
            return troubles_[i].error;
    return 0;
}

void UdpSender::note_refused(const TransmitRun& run, std::size_t bytes, int error) {
    // Full buffers are the network's ordinary way to lose a packet.
    if (error == EAGAIN || error == ENOBUFS || error == EINTR) return;
    note_sent(run, bytes);
    if (trouble_count_ < kTroublesMax)
        troubles_[trouble_count_++] = {run.path.source, run.path.destination, error, bytes};
}

void UdpSender::note_sent(const TransmitRun& run, std::size_t bytes) {
    for (std::size_t i = 0; i < trouble_count_; ++i) {
        const Trouble& trouble = troubles_[i];
        if (trouble.source != run.path.source || trouble.destination != run.path.destination)
            continue;
        if (trouble.error == EMSGSIZE && bytes < trouble.bytes) return;
        troubles_[i] = troubles_[--trouble_count_];
        return;
    }
}

void UdpSender::transmit(std::span<const TransmitRun> runs) {
    while (!runs.empty()) {
        Address& address = address_of(runs.front().path.source);
        Outlet* outlet = outlet_for(address, runs.front());
        std::size_t count = 1;
        while (count < runs.size() && count < kBatchMax && runs[count].path.source == address.gid &&
               outlet_for(address, runs[count]) == outlet)
            ++count;
        if (outlet == nullptr) {
            for (const TransmitRun& run : runs.first(count)) {
                dropped_packets_ += run.packet_count;
                note_refused(run, run.segment_size, EADDRNOTAVAIL);
            }
        } else {
            send_batch(*outlet, address.scope, runs.first(count));
        }
        runs = runs.subspan(count);
    }
}

void UdpSender::send_batch(const Outlet& outlet, std::uint32_t scope,
                           std::span<const TransmitRun> runs) {
    std::array<Message, kBatchMax> messages;
    std::array<mmsghdr, kBatchMax> headers;
    std::array<const TransmitRun*, kBatchMax> queued;
    std::size_t count = 0;
    for (const TransmitRun& run : runs) {
        if (meddlers_.faults != nullptr) {
            send_faultily(outlet, scope, run);
            continue;
        }
        if (run.packet_count > 1 && !segmentation_) {
            send_singly(outlet, scope, run);
            continue;
        }
        const bool segmented = run.packet_count > 1;
        if (segmented) {
            wire::seal_run(wire_address(outlet, run), run.bytes, run.segment_size);
        } else {
            wire::seal(wire_address(outlet, run), 0, run.bytes);
        }
        if (meddlers_.capture != nullptr) capture(outlet, run, segmented);
        const auto size = static_cast<std::uint16_t>(segmented ? run.segment_size : 0);
        fill(run, {scope, port_, size}, run.bytes, messages[count], headers[count].msg_hdr);
        queued[count++] = &run;
    }
    std::size_t sent = 0;
    while (sent < count) {
        const int n = send_some(outlet.fd.get(), std::span(headers).subspan(sent, count - sent));
        if (n > 0) {
            const std::size_t end = sent + static_cast<std::size_t>(n);
            for (; sent < end && trouble_count_ > 0; ++sent)
                note_sent(*queued[sent], queued[sent]->segment_size);
            sent = end;
            continue;
        }
        // The first message failed. A segmented one may fail for want of the feature.
        const TransmitRun& failed = *queued[sent];
        if (failed.packet_count > 1 && (errno == EINVAL || errno == EIO || errno == EMSGSIZE)) {
            if (errno != EMSGSIZE) segmentation_ = false;
            send_singly(outlet, scope, failed);
        } else {
            note_refused(failed, failed.segment_size, errno);
            dropped_packets_ += failed.packet_count;
        }
        ++sent;
    }
}

namespace {

// The packets of a run, one after the other.
template <class Each>
void for_each_packet(const TransmitRun& run, Each&& each) {
    ByteSpan rest = run.bytes;
    while (!rest.empty()) {
        const ByteSpan packet = rest.first(std::min<std::size_t>(run.segment_size, rest.size()));
        rest = rest.subspan(packet.size());
        each(packet);
    }
}

bool send_one(int fd, const Target& target, const TransmitRun& run, ByteSpan packet) {
    Message message;
    msghdr header;
    fill(run, target, packet, message, header);
    return send_message(fd, header, MSG_DONTWAIT) >= 0;
}

}  // namespace

void UdpSender::send_singly(const Outlet& outlet, std::uint32_t scope, const TransmitRun& run) {
    for_each_packet(run, [&](ByteSpan packet) {
        wire::seal(wire_address(outlet, run), 0, packet);
        send_packet(outlet, scope, run, packet);
    });
}

void UdpSender::send_packet(const Outlet& outlet, std::uint32_t scope, const TransmitRun& run,
                            ByteSpan packet) {
    if (meddlers_.capture != nullptr)
        meddlers_.capture->write({.address = wire_address(outlet, run),
                                  .ipv4_id = 0,
                                  .traffic_class = run.path.traffic_class,
                                  .udp_payload = packet});
    if (send_one(outlet.fd.get(), {scope, port_, 0}, run, packet)) {
        if (trouble_count_ > 0) note_sent(run, packet.size());
        return;
    }
    note_refused(run, packet.size(), errno);
    ++dropped_packets_;
}

void UdpSender::send_faultily(const Outlet& outlet, std::uint32_t scope, const TransmitRun& run) {
    constexpr std::size_t kHeldMax = 64;
    for_each_packet(run, [&](ByteSpan packet) {
        wire::seal(wire_address(outlet, run), 0, packet);
        const FaultInjector::Fate fate = meddlers_.faults->next(packet);
        if (fate.drop) return;
        if (fate.flip_seed != 0) FaultInjector::flip_bits(packet, fate.flip_seed);
        if (fate.hold && held_.size() < kHeldMax) {
            held_.push_back({outlet.fd.get(), scope, run, {packet.begin(), packet.end()}});
            return;
        }
        send_packet(outlet, scope, run, packet);
        if (fate.duplicate) send_packet(outlet, scope, run, packet);
        for (Held& held : held_)
            send_one(held.fd, {held.scope, port_, 0}, held.run, ByteSpan(held.bytes));
        held_.clear();
    });
}

void UdpSender::capture(const Outlet& outlet, const TransmitRun& run, bool segmented) {
    std::uint16_t id = 0;
    for_each_packet(run, [&](ByteSpan packet) {
        meddlers_.capture->write({.address = wire_address(outlet, run),
                                  .ipv4_id = segmented ? id++ : std::uint16_t{0},
                                  .traffic_class = run.path.traffic_class,
                                  .udp_payload = packet});
    });
}

}  // namespace feroce::port
