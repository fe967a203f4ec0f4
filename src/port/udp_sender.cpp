#include "port/udp_sender.hpp"

#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "port/address.hpp"
#include "port/epoll_calls.hpp"
#include "port/error_queue.hpp"
#include "port/event_set.hpp"
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

// sendmmsg() costs a lone message something, and so do control messages that it lacks.
int send_once(int fd, std::span<mmsghdr> messages) {
    if (messages.size() > 1) return send_messages(fd, messages);
    const msghdr& lone = messages[0].msg_hdr;
    const long sent = lone.msg_controllen == 0 ? send_plain(fd, lone, MSG_DONTWAIT)
                                               : send_message(fd, lone, MSG_DONTWAIT);
    return sent < 0 ? -1 : 1;
}

}  // namespace

UdpSender::UdpSender(std::shared_ptr<Network> network, const LocalAddresses& local,
                     RandomSource& random, std::uint16_t port, const Meddlers& meddlers)
    : network_(std::move(network)),
      local_(local),
      random_(random),
      port_(port),
      capture_(meddlers.capture) {
    addresses_.reserve(kAddressesMax);
    if (meddlers.faults != nullptr) disturber_.emplace(*meddlers.faults);
}

// Programs' threads come here by calls that must not throw, with a shard's lock.
UdpSender::Address* UdpSender::address_of(const Gid& source) {
    const std::size_t place =
        places_.find(source, [this](std::size_t i) -> const Gid& { return addresses_[i].gid; });
    if (place == GidPlaces::kNone) return add_address(source);
    Address& address = addresses_[place];
    if (address.scope == 0) learn_scope(address);
    return &address;
}

UdpSender::Address* UdpSender::add_address(const Gid& source) {
    if (addresses_.size() == kAddressesMax && !give_up_address()) {
        open_error_ = ENOMEM;
        return nullptr;
    }
    Address& address = addresses_.emplace_back();
    address.gid = source;
    places_.add(source, addresses_.size() - 1);
    learn_scope(address);
    return &address;
}

// One that the machine has lost: nothing can be sent from there. If there is none, there will be
// none before the machine's addresses change.
bool UdpSender::give_up_address() {
    const std::uint32_t version = local_.version();
    if (none_lost_at_ == version) return false;
    ++searches_;
    const auto lost = std::find_if(addresses_.begin(), addresses_.end(),
                                   [this](const Address& a) { return !local_.holds(a.gid); });
    if (lost == addresses_.end()) {
        none_lost_at_ = version;
        return false;
    }
    // A forked child may have it open still: then it would stay in the set.
    if (const Outlet& managers = lost->outlets[kSocketsPerAddress]; managers.is_open())
        kernel_epoll_ctl(errors_set_, EPOLL_CTL_DEL, managers.fd(), nullptr);
    if (lost != addresses_.end() - 1) *lost = std::move(addresses_.back());
    addresses_.pop_back();
    places_.clear();
    for (std::size_t i = 0; i < addresses_.size(); ++i) places_.add(addresses_[i].gid, i);
    return true;
}

// A new address may be used before we are told of it.
void UdpSender::learn_scope(Address& address) const {
    const std::uint32_t version = local_.version();
    if (address.version == version) return;
    address.version = version;
    address.scope = local_.interface_of(address.gid);
    if (address.scope == 0) return;
    for (Outlet& outlet : address.outlets) outlet.set_scope(address.scope);
}

Outlet* UdpSender::outlet_for(Address* address, const TransmitRun& run) {
    if (address == nullptr) return nullptr;
    const bool managers = run.is_for_manager;
    const std::size_t place =
        managers ? kSocketsPerAddress : run.destination_slot % kSocketsPerAddress;
    Outlet& outlet = address->outlets[place];
    if (outlet.is_open()) return &outlet;
    Result<Outlet> opened =
        network_->run([&] { return Outlet::open(address->gid, address->scope, random_); });
    if (!opened) {
        open_error_ = opened.error().code;
        return nullptr;
    }
    outlet = std::move(*opened);
    // Errors and nothing else. Without it they are heard of later.
    if (managers && errors_set_ >= 0)
        add_to_set(errors_set_, outlet.fd(), 0, static_cast<std::uint64_t>(outlet.fd()));
    return &outlet;
}

void UdpSender::look_at_errors() {
    std::array<epoll_event, 16> events;
    const int count =
        kernel_epoll_wait(errors_set_, events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) {
        const auto fd = static_cast<int>(events[static_cast<std::size_t>(i)].data.u64);
        read_errors(fd, port_, suspects_);
    }
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
    // Full buffers are the network's ordinary way to lose a packet. The other is of packets before.
    if (error == EAGAIN || error == ENOBUFS || error == EINTR || error == ECONNREFUSED) return;
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
    if (!disturber_) return send_runs(runs, 0);
    for (const TransmitRun& run : runs)
        for (const Disturber::Packet& packet : disturber_->disturb(run))
            send_runs(std::span(&packet.run, 1), packet.flip_seed);
}

void UdpSender::send_runs(std::span<const TransmitRun> runs, std::uint64_t damage) {
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
            send_through(*outlet, runs.first(count), damage);
        }
        runs = runs.subspan(count);
    }
}

// What is sealed is sent in this form, or cut by finds_another_way() and sealed again. A damaged
// packet comes alone, so it is not: damage is done once.
void UdpSender::send_through(Outlet& outlet, std::span<const TransmitRun> runs,
                             std::uint64_t damage) {
    if (!segmentation_) outlet.forgo_segments();
    Segmenter segmenter(runs,
                        segmentation_ ? Segmenter::Cutting::ByKernel : Segmenter::Cutting::Here);
    while (!segmenter.finished()) {
        std::array<Send, kBatchMax> room;
        const std::span<const Send> sends = segmenter.upcoming(room);
        outlet.expect(manner_of(*sends[0].run, sends[0].is_segmented()), sends[0].bytes.size());
        for (const Send& send : sends) {
            seal(outlet, send, damage);
            if (capture_ != nullptr) capture(outlet, send);
        }
        send_batch(outlet, segmenter, sends);
    }
}

// Until all are sent or dropped, or what is left has changed its form.
void UdpSender::send_batch(Outlet& outlet, Segmenter& segmenter, std::span<const Send> sends) {
    std::array<Message, kBatchMax> messages;
    std::array<mmsghdr, kBatchMax> headers;
    for (std::size_t i = 0; i < sends.size(); ++i)
        fill(outlet, manner_of(*sends[i].run, sends[i].is_segmented()),
             target(outlet, *sends[i].run), sends[i].bytes, messages[i], headers[i].msg_hdr);
    std::span<mmsghdr> left = std::span(headers).first(sends.size());
    while (!left.empty()) {
        const int taken = send_some(outlet, left);
        const int error = errno;
        std::size_t done = 1;
        if (taken > 0) {
            done = static_cast<std::size_t>(taken);
            for (std::size_t i = 0; i < done && trouble_count_ > 0; ++i)
                note_sent(*sends[i].run, sends[i].packet_bytes());
        } else if (finds_another_way(outlet, segmenter, sends[0], error)) {
            return;
        } else {
            note_refused(*sends[0].run, sends[0].packet_bytes(), error);
            dropped_packets_ += sends[0].packets;
        }
        segmenter.advance(done);
        sends = sends.subspan(done);
        left = left.subspan(done);
    }
}

// Errors of packets that were sent before fail a send, each one once: it is repeated. Fewer than
// all may be sent for that reason, too.
int UdpSender::send_some(const Outlet& outlet, std::span<mmsghdr> messages) {
    constexpr int kTriesMax = 4;  // For a flood.
    for (int tries = 1;; ++tries) {
        const int taken = send_once(outlet.fd(), messages);
        if (taken == static_cast<int>(messages.size())) return taken;
        const int error = errno;
        const bool old = may_be_of_another(error);
        if (taken > 0 || old) read_errors(outlet.fd(), port_, suspects_);
        errno = error;
        if (taken > 0 || !old || tries == kTriesMax) return taken;
    }
}

bool UdpSender::finds_another_way(Outlet& outlet, Segmenter& segmenter, const Send& refused,
                                  int error) {
    if (!blames_segments(error)) return false;
    // The others were filled for a socket that segments by itself, too.
    if (outlet.forgo_segments()) return true;
    if (!refused.is_segmented()) return false;
    if (error == EMSGSIZE) {  // Another run may be shorter.
        segmenter.cut_next();
    } else {
        segmentation_ = false;
        segmenter.cut_all();
    }
    return true;
}

void UdpSender::seal(const Outlet& outlet, const Send& send, std::uint64_t damage) const {
    const wire::DatagramAddress address = wire_address(outlet, *send.run);
    if (send.is_segmented()) {
        wire::seal_run(address, send.bytes, send.run->segment_size);
    } else {
        wire::seal(address, 0, send.bytes);
    }
    if (damage != 0) FaultInjector::flip_bits(send.bytes, damage);
}

void UdpSender::capture(const Outlet& outlet, const Send& send) const {
    std::uint16_t id = 0;
    for_each_packet(send.bytes, send.run->segment_size, [&](ByteSpan packet) {
        capture_->write({.address = wire_address(outlet, *send.run),
                         .ipv4_id = id++,
                         .traffic_class = send.run->path.traffic_class,
                         .udp_payload = packet,
                         .direction = wire::Direction::Outbound});
    });
}

}  // namespace feroce::port
