#include "port/udp_sender.hpp"

#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "port/address.hpp"
#include "port/interfaces.hpp"
#include "port/socket_calls.hpp"

namespace feroce::port {
namespace {

using transport::TransmitRun;

constexpr std::size_t kBatchMax = 16;

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

// With control messages for what the outlet's socket does not do by itself.
void fill(const Outlet& outlet, const Manner& wanted, const SocketAddress& to, ByteSpan bytes,
          Message& m, msghdr& out) {
    m.to = to;
    m.vec = {bytes.data(), bytes.size()};
    out = {};
    out.msg_name = &m.to.any;
    out.msg_namelen = m.to.length;
    out.msg_iov = &m.vec;
    out.msg_iovlen = 1;
    ControlWriter control(out, m.control);
    if (outlet.suits(wanted, bytes.size())) return;
    const Manner& given = outlet.manner();
    const bool v4 = outlet.is_v4();
    if (wanted.segment_size != given.segment_size)
        control.add(SOL_UDP, UDP_SEGMENT, wanted.segment_size);
    if (wanted.traffic_class != given.traffic_class)
        control.add(v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_TOS : IPV6_TCLASS,
                    int{wanted.traffic_class});
    if (wanted.hop_limit != given.hop_limit)
        control.add(v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_TTL : IPV6_HOPLIMIT,
                    int{wanted.hop_limit});
}

// A send may have failed for want of segmentation, or because a segment was too long.
bool blames_segments(int error) {
    return error == EINVAL || error == EIO || error == EMSGSIZE;
}

// As sendmmsg(), which costs a lone message something.
int send_some(int fd, std::span<mmsghdr> messages) {
    if (messages.size() > 1) return send_messages(fd, messages);
    return send_message(fd, messages[0].msg_hdr, MSG_DONTWAIT) < 0 ? -1 : 1;
}

std::uint32_t interface_of(const Gid& gid) {
    for (const host::Interface& interface : list_interfaces({}))
        for (const Gid& own : interface.gids)
            if (own == gid) return interface.index;
    return 0;
}

}  // namespace

// Programs' threads come here by calls that must not throw, with a shard's lock.
UdpSender::Address* UdpSender::address_of(const Gid& source) try {
    for (Address& a : addresses_)
        if (a.gid == source) return &a;
    const std::uint32_t scope = network_->run([&] { return interface_of(source); });
    Address& added = addresses_.emplace_back();
    added.gid = source;
    added.scope = scope;
    return &added;
} catch (const std::bad_alloc&) {
    open_error_ = ENOMEM;
    return nullptr;
}

Outlet* UdpSender::outlet_for(Address* address, const TransmitRun& run) {
    if (address == nullptr) return nullptr;
    Outlet& outlet = address->outlets[run.destination_slot % kSocketsPerAddress];
    if (outlet.is_open()) return &outlet;
    Result<Outlet> opened =
        network_->run([&] { return Outlet::open(address->gid, address->scope, random_); });
    if (!opened) {
        open_error_ = opened.error().code;
        return nullptr;
    }
    outlet = std::move(*opened);
    return &outlet;
}

wire::DatagramAddress UdpSender::wire_address(const Outlet& outlet, const TransmitRun& run) const {
    return {run.path.source, run.path.destination, outlet.port(), port_};
}

SocketAddress UdpSender::target(const Outlet& outlet, const TransmitRun& run) const {
    return socket_address(run.path.destination, port_, outlet.scope());
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
        Address* address = address_of(runs.front().path.source);
        Outlet* outlet = outlet_for(address, runs.front());
        std::size_t count = 1;
        while (count < runs.size() && count < kBatchMax &&
               runs[count].path.source == runs.front().path.source &&
               outlet_for(address, runs[count]) == outlet)
            ++count;
        if (outlet == nullptr) {
            for (const TransmitRun& run : runs.first(count)) {
                dropped_packets_ += run.packet_count;
                note_refused(run, run.segment_size, open_error_);
            }
        } else {
            send_through(*outlet, runs.first(count));
        }
        runs = runs.subspan(count);
    }
}

void UdpSender::seal(const Outlet& outlet, const TransmitRun& run, bool segmented) {
    if (segmented) {
        wire::seal_run(wire_address(outlet, run), run.bytes, run.segment_size);
    } else {
        wire::seal(wire_address(outlet, run), 0, run.bytes);
    }
    if (meddlers_.capture != nullptr) capture(outlet, run, segmented);
}

// The short way for what needs no control message. False if it does, or another way may help.
bool UdpSender::send_plainly(Outlet& outlet, const TransmitRun& run, const Manner& wanted) {
    if (!outlet.suits(wanted, run.bytes.size())) return false;
    const bool segmented = wanted.segment_size != 0;
    seal(outlet, run, segmented);
    if (send_plain(outlet.fd(), run.bytes, target(outlet, run), MSG_DONTWAIT) >= 0) {
        if (trouble_count_ > 0) note_sent(run, run.segment_size);
        return true;
    }
    const int error = errno;
    if (blames_segments(error) && outlet.forgo_segments()) return false;
    note_refused(run, run.segment_size, error);
    dropped_packets_ += run.packet_count;
    return true;
}

void UdpSender::send_through(Outlet& outlet, std::span<const TransmitRun> runs) {
    if (meddlers_.faults != nullptr) {
        for (const TransmitRun& run : runs) send_faultily(outlet, run);
        return;
    }
    const TransmitRun& first = runs.front();
    const bool segmented = first.packet_count > 1;
    if (!segmentation_) outlet.forgo_segments();
    if (!segmented || segmentation_) {
        const Manner wanted = manner_of(first, segmented);
        outlet.expect(wanted, first.bytes.size());
        if (runs.size() == 1 && send_plainly(outlet, first, wanted)) return;
    }
    send_batch(outlet, runs);
}

void UdpSender::send_batch(Outlet& outlet, std::span<const TransmitRun> runs) {
    std::array<Message, kBatchMax> messages;
    std::array<mmsghdr, kBatchMax> headers;
    std::array<const TransmitRun*, kBatchMax> queued;
    std::size_t count = 0;
    for (const TransmitRun& run : runs) {
        const bool segmented = run.packet_count > 1;
        if (segmented && !segmentation_) {
            send_singly(outlet, run);
            continue;
        }
        seal(outlet, run, segmented);
        fill(outlet, manner_of(run, segmented), target(outlet, run), run.bytes, messages[count],
             headers[count].msg_hdr);
        queued[count++] = &run;
    }
    std::size_t sent = 0;
    while (sent < count) {
        const int n = send_some(outlet.fd(), std::span(headers).subspan(sent, count - sent));
        if (n > 0) {
            const std::size_t end = sent + static_cast<std::size_t>(n);
            for (; sent < end && trouble_count_ > 0; ++sent)
                note_sent(*queued[sent], queued[sent]->segment_size);
            sent = end;
            continue;
        }
        const TransmitRun& failed = *queued[sent];
        const int error = errno;
        // What is left was filled for a socket that segments by itself. If one does, every run was
        // queued, each in its place.
        if (blames_segments(error) && outlet.forgo_segments())
            return send_batch(outlet, runs.subspan(sent));
        if (failed.packet_count > 1 && blames_segments(error)) {
            if (error != EMSGSIZE) segmentation_ = false;
            send_singly(outlet, failed);
        } else {
            note_refused(failed, failed.segment_size, error);
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

}  // namespace

void UdpSender::send_singly(const Outlet& outlet, const TransmitRun& run) {
    for_each_packet(run, [&](ByteSpan packet) {
        wire::seal(wire_address(outlet, run), 0, packet);
        send_packet(outlet, run, packet);
    });
}

bool UdpSender::send_one(const Outlet& outlet, const TransmitRun& run, ByteSpan packet) const {
    Message message;
    msghdr header;
    fill(outlet, manner_of(run, false), target(outlet, run), packet, message, header);
    return send_message(outlet.fd(), header, MSG_DONTWAIT) >= 0;
}

void UdpSender::send_packet(const Outlet& outlet, const TransmitRun& run, ByteSpan packet) {
    if (meddlers_.capture != nullptr)
        meddlers_.capture->write({.address = wire_address(outlet, run),
                                  .ipv4_id = 0,
                                  .traffic_class = run.path.traffic_class,
                                  .udp_payload = packet});
    if (send_one(outlet, run, packet)) {
        if (trouble_count_ > 0) note_sent(run, packet.size());
        return;
    }
    note_refused(run, packet.size(), errno);
    ++dropped_packets_;
}

void UdpSender::send_faultily(const Outlet& outlet, const TransmitRun& run) {
    constexpr std::size_t kHeldMax = 64;
    for_each_packet(run, [&](ByteSpan packet) {
        wire::seal(wire_address(outlet, run), 0, packet);
        const FaultInjector::Fate fate = meddlers_.faults->next(packet);
        if (fate.drop) return;
        if (fate.flip_seed != 0) FaultInjector::flip_bits(packet, fate.flip_seed);
        if (fate.hold && held_.size() < kHeldMax) {
            held_.push_back({run, {packet.begin(), packet.end()}});
            return;
        }
        send_packet(outlet, run, packet);
        if (fate.duplicate) send_packet(outlet, run, packet);
        for (Held& held : held_)
            if (Outlet* its = outlet_for(address_of(held.run.path.source), held.run))
                send_one(*its, held.run, ByteSpan(held.bytes));
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
