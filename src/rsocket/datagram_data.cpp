// How an rsocket of datagrams sends and receives.
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/shortage.hpp"
#include "base/uncancelled.hpp"
#include "rsocket/datagram_socket.hpp"

namespace feroce::rsockets {
namespace {

// Datagrams that came by UDP and were not read; others are lost then, as in a full socket.
constexpr std::size_t kMostByUdp = 512;
// Taken from the kernel at a time, so that a flood does not keep a caller.
constexpr int kPacketsAtATime = 64;
constexpr std::uint32_t kLooksBetween = 64;
// After a second without a word, a peer's queue pair is asked for again.
constexpr std::chrono::seconds kHeardOf{1};

std::size_t total_of(Places from) {
    std::size_t total = 0;
    for (const ByteView place : from) total += place.size();
    return total;
}

iovec piece_of(ByteView bytes) {
    return {const_cast<std::byte*>(bytes.data()), bytes.size()};
}

}  // namespace

// ---- sending

Result<Name> DatagramSocket::destination(const Destination& to) const {
    if (to.address == nullptr) {
        if (connected_) return *connected_;
        return Error{EDESTADDRREQ, "the datagram has no destination"};
    }
    if (family_ == AF_INET && to.address->sa_family != AF_INET)
        return Error{EAFNOSUPPORT, "the rsocket is of another family"};
    return Name::of(to.address, to.length);
}

bool DatagramSocket::is_known(const Peer& peer) const {
    return peer.handle != nullptr && Clock::now() - peer.heard < kHeardOf;
}

Result<std::size_t> DatagramSocket::send(Places from, int flags, const Destination& to) {
    if ((flags & MSG_OOB) != 0) return Error{EOPNOTSUPP, "rsockets have no out-of-band data"};
    Lock lock(mutex_);
    if (!can_write_) return Error{EPIPE, "the rsocket sends no more"};
    const Result<Name> name = destination(to);
    if (!name) return name.error();
    const std::size_t total = total_of(from);
    if (total > kMostDatagram - UdpHeader::kMost)
        return Error{EMSGSIZE, "a datagram has 2020 bytes at most"};
    TRY(ensure_bound());
    Result<Peer*> peer = peer_of(*name);
    if (!peer) return peer.error();
    const bool blocking = blocking_ && (flags & MSG_DONTWAIT) == 0;
    const Deadline deadline = deadline_of(options_.send_timeout);
    // A sender that sends on and on looks only now and then at what came.
    if (!has_room() || !is_known(**peer) || ++looks_ % kLooksBetween == 0) {
        if (const int code = wait(lock, blocking, deadline, &DatagramSocket::has_room); code != 0)
            return Error{code, "no room to send"};
        if (!can_write_) return Error{EPIPE, "the rsocket sends no more"};
        peer = peer_of(*name);
        if (!peer) return peer.error();
    }
    if (const int code = std::exchange(error_, 0); code != 0)
        return Error{code, "the peer refused an earlier datagram"};
    if (is_known(**peer) && (*peer)->link->can_carry(total + UdHeader::kMost)) {
        if (Result<void> sent = send_by_link(**peer, from); !sent) return sent.error();
        return total;
    }
    TRY(send_all_by_udp(lock, *name, from, blocking, deadline));
    return total;
}

Result<void> DatagramSocket::send_all_by_udp(Lock& lock, const Name& to, Places from, bool blocking,
                                             Deadline deadline) {
    for (;;) {
        // Looked up each time: other threads had the lock.
        const Result<Peer*> peer = peer_of(to);
        if (!peer) return peer.error();
        const int code = send_by_udp(UdpHeader::Kind::Data, to, *(*peer)->link, from);
        if (code == 0) return {};
        if (code != EAGAIN) return Error{code, "the kernel refuses the datagram"};
        if (const int why = await_udp_room(lock, blocking, deadline); why != 0)
            return Error{why, "no room to send"};
    }
}

Result<void> DatagramSocket::send_by_link(Peer& peer, Places from) {
    const HeaderBytes header = UdHeader{peer.link->local()}.emit();
    return peer.link->send(*peer.handle, peer.queue_pair, header.view(), from);
}

// The errno, or 0.
int DatagramSocket::send_by_udp(UdpHeader::Kind kind, const Name& to, const UdLink& link,
                                Places from) {
    const Uncancelled part;
    const HeaderBytes header = UdpHeader{kind, link.queue_pair(), link.local()}.emit();
    sockaddr_storage address = to.as(family_);
    std::vector<iovec> pieces{piece_of(header.view())};
    for (const ByteView place : from) pieces.push_back(piece_of(place));
    msghdr message{};
    message.msg_name = &address;
    message.msg_namelen = family_ == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    return ::sendmsg(udp_, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno : 0;
}

int DatagramSocket::await_udp_room(Lock& lock, bool blocking, Deadline deadline) {
    if (!blocking) return EAGAIN;
    pollfd entry{udp_, POLLOUT, 0};
    lock.unlock();
    const int count = ::poll(&entry, 1, milliseconds_until(deadline));
    const int code = count < 0 ? errno : EAGAIN;
    lock.lock();
    return count > 0 ? 0 : code;
}

// ---- arrivals

bool DatagramSocket::is_wanted(const Name& from) const {
    return !connected_ || *connected_ == from;
}

void DatagramSocket::take_udp() {
    const Uncancelled part;
    std::array<std::byte, kMostDatagram + UdpHeader::kMost> packet;
    for (int i = 0; i < kPacketsAtATime; ++i) {
        sockaddr_storage address{};
        socklen_t length = sizeof address;
        const ssize_t size = ::recvfrom(udp_, packet.data(), packet.size(), MSG_DONTWAIT,
                                        reinterpret_cast<sockaddr*>(&address), &length);
        if (size < 0) {
            if (errno != EAGAIN && errno != EINTR && connected_) error_ = errno;
            return;
        }
        const Result<Name> from = Name::of(reinterpret_cast<const sockaddr*>(&address), length);
        // A read side that was shut down gives an end without a sender, for ever.
        if (!from) return;
        on_udp(*from, ByteView(packet).first(static_cast<std::size_t>(size)));
    }
}

// A peer that tells another address than its packet has is behind something that changes addresses:
// it keeps to UDP.
void DatagramSocket::on_udp(const Name& from, ByteView packet) {
    std::size_t size = 0;
    const std::optional<UdpHeader> header = UdpHeader::parse(packet, size);
    if (!header) return;
    const Result<Peer*> peer = peer_of(from);
    if (peer && header->sender.address == from.address) learn(**peer, from, header->queue_pair);
    if (header->kind != UdpHeader::Kind::Data) return;
    if (peer) static_cast<void>(send_by_udp(UdpHeader::Kind::Control, from, *(*peer)->link, {}));
    if (arrived_by_udp_ == kMostByUdp || !is_wanted(from)) return;
    Datagram datagram;
    datagram.from = from;
    const ByteView data = packet.subspan(size);
    datagram.own.assign(data.begin(), data.end());
    arrived_.push_back(std::move(datagram));
    arrived_.back().bytes = arrived_.back().own;
    ++arrived_by_udp_;
}

void DatagramSocket::take_arrivals(UdLink& link) {
    std::array<UdLink::Arrival, 16> batch;
    bool more = true;
    for (int i = 0; i < kPacketsAtATime && more; ++i) {
        const std::size_t count = link.take(batch, more);
        for (const UdLink::Arrival& arrival : std::span(batch).first(count))
            on_arrival(link, arrival);
    }
}

// A sender as the kernel names it: by the interface it came through. A link of a global address
// does not tell that; it is the connection's then.
Name DatagramSocket::scoped(Name sender, const UdLink& link) const {
    if (!sender.needs_scope()) return sender;
    sender.scope = link.local().scope;
    if (sender.scope == 0 && connected_) sender.scope = connected_->scope;
    return sender;
}

void DatagramSocket::on_arrival(UdLink& link, const UdLink::Arrival& arrival) {
    std::size_t size = 0;
    const std::optional<UdHeader> header = UdHeader::parse(arrival.bytes, size);
    if (!header) return link.give_back(arrival.place);
    const Name from = scoped(header->sender, link);
    if (!is_wanted(from)) return link.give_back(arrival.place);
    Datagram datagram;
    datagram.from = from;
    datagram.bytes = arrival.bytes.subspan(size);
    datagram.link = &link;
    datagram.place = arrival.place;
    // Without memory it is lost; its place and those of others of the batch are not.
    if (!with_memory([&] { arrived_.push_back(std::move(datagram)); }))
        return link.give_back(arrival.place);
    // Only the queue pair that it told by UDP speaks for a peer.
    const auto known = peers_.find(from);
    if (known != peers_.end() && known->second.queue_pair == arrival.queue_pair)
        known->second.heard = Clock::now();
}

// ---- receiving

Result<std::size_t> DatagramSocket::receive(std::span<const iovec> to, int flags,
                                            const Sender& sender) {
    if ((flags & MSG_OOB) != 0) return Error{EOPNOTSUPP, "rsockets have no out-of-band data"};
    Lock lock(mutex_);
    const bool blocking = blocking_ && (flags & MSG_DONTWAIT) == 0;
    const Deadline deadline = deadline_of(options_.receive_timeout);
    if (const int code = wait(lock, blocking, deadline, &DatagramSocket::has_news); code != 0)
        return Error{code, "nothing has arrived"};
    if (const int code = std::exchange(error_, 0); code != 0)
        return Error{code, "the peer refused an earlier datagram"};
    if (arrived_.empty()) return 0;  // Shut down.
    const Datagram& datagram = arrived_.front();
    const std::size_t copied = copy_out(datagram, to, sender);
    const std::size_t told = (flags & MSG_TRUNC) != 0 ? datagram.bytes.size() : copied;
    if ((flags & MSG_PEEK) == 0) drop_first();
    return told;
}

std::size_t DatagramSocket::copy_out(const Datagram& datagram, std::span<const iovec> to,
                                     const Sender& sender) const {
    ByteView left = datagram.bytes;
    for (const iovec& place : to) {
        const std::size_t count = std::min(place.iov_len, left.size());
        if (count != 0) std::memcpy(place.iov_base, left.data(), count);
        left = left.subspan(count);
    }
    if (sender.flags != nullptr) *sender.flags = left.empty() ? 0 : MSG_TRUNC;
    const sockaddr_storage from = datagram.from.as(family_);
    if (sender.address != nullptr && sender.length != nullptr)
        static_cast<void>(
            copy_name(reinterpret_cast<const sockaddr*>(&from), sender.address, sender.length));
    return datagram.bytes.size() - left.size();
}

void DatagramSocket::drop_first() {
    const Datagram& first = arrived_.front();
    if (first.link != nullptr)
        first.link->give_back(first.place);
    else
        --arrived_by_udp_;
    arrived_.pop_front();
    drop_read_links();
}

}  // namespace feroce::rsockets
