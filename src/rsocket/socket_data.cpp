// How a connected rsocket sends and receives.
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "rsocket/socket.hpp"

namespace feroce::rsockets {
namespace {

constexpr Error kOutOfBand{EOPNOTSUPP, "rsockets have no out-of-band data"};

}  // namespace

Result<std::size_t> Socket::send(Places from, int flags, const Destination&) {
    if ((flags & MSG_OOB) != 0) return kOutOfBand;
    Lock lock(mutex_);
    if (Result<void> open = check_open(); !open) return open.error();
    std::size_t total = 0;
    for (const ByteView place : from) total += place.size();
    const bool blocking = blocking_ && (flags & MSG_DONTWAIT) == 0;
    const Deadline deadline = deadline_of(options_.send_timeout);
    std::size_t sent = 0;
    do {
        const int code = has_room() ? 0 : wait(lock, blocking, deadline, &Socket::can_write);
        if (code != 0)
            return sent != 0 ? Result<std::size_t>(sent) : Error{code, "no room to send"};
        Error why{failure(), "the connection has failed"};
        if (why.code == 0 && !link_->stream().is_writable())
            why = {link_->stream().is_connected() ? EPIPE : ECONNRESET, "the stream has ended"};
        if (why.code != 0) return sent != 0 ? Result<std::size_t>(sent) : why;
        sent += link_->stream().send(from, sent, link_->outlet());
    } while (sent < total);
    return sent;
}

Result<std::size_t> Socket::receive(std::span<const iovec> to, int flags, const Sender& sender) {
    Result<std::size_t> got = receive_bytes(to, flags);
    if (got && sender.flags != nullptr) *sender.flags = 0;
    if (got && sender.address != nullptr)
        static_cast<void>(peer_name(sender.address, sender.length));
    return got;
}

Result<std::size_t> Socket::receive_bytes(std::span<const iovec> to, int flags) {
    if ((flags & MSG_OOB) != 0) return kOutOfBand;
    Lock lock(mutex_);
    if (Result<void> open = check_open(); !open) return open.error();
    const bool blocking = blocking_ && (flags & MSG_DONTWAIT) == 0;
    const Deadline deadline = deadline_of(options_.receive_timeout);
    std::size_t got = 0;
    for (const iovec& place : to) {
        ByteSpan room(static_cast<std::byte*>(place.iov_base), place.iov_len);
        while (!room.empty()) {
            if (got != 0 && (flags & MSG_WAITALL) == 0 && !link_->stream().has_data()) return got;
            const int code = has_unread() ? 0 : wait(lock, blocking, deadline, &Socket::can_read);
            if (code != 0)
                return got != 0 ? Result<std::size_t>(got) : Error{code, "nothing has arrived"};
            if (link_ == nullptr || !link_->stream().has_data()) {  // The end, good or bad.
                if (got != 0 || failure() == 0) return got;
                return Error{failure(), "the connection has failed"};
            }
            if ((flags & MSG_PEEK) != 0) return link_->stream().peek(room);
            const std::size_t count = link_->stream().receive(room);
            room = room.subspan(count);
            got += count;
            link_->stream().flush(link_->outlet());
        }
    }
    return got;
}

// ---- mapped memory

std::optional<std::uint32_t> Socket::free_mapping_index() const {
    for (std::uint32_t index = 0; index < link_->stream().peer_mappings(); ++index)
        if (std::none_of(mapped_.begin(), mapped_.end(),
                         [&](const Mapped& m) { return m.index == index; }))
            return index;
    return std::nullopt;
}

Result<off_t> Socket::map(void* memory, std::size_t length, int protection, off_t offset) {
    Lock lock(mutex_);
    if ((protection & ~PROT_WRITE) != 0 || length == 0 || length > UINT32_MAX)
        return Error{EINVAL, "mapped memory is written, and at most 4 GiB"};
    if (phase_ != Phase::Open) return Error{ENOTCONN, "the rsocket has no peer"};
    const std::optional<std::uint32_t> index = free_mapping_index();
    if (!index) return Error{ENOBUFS, "the peer's RDMA_IOMAPSIZE allows no more mappings"};
    const int access = protection == PROT_WRITE ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
                                                : IBV_ACCESS_LOCAL_WRITE;
    mapped_.reserve(mapped_.size() + 1);
    ibv_mr* region = ibv_reg_mr(id_->pd, memory, length, access);
    if (region == nullptr) return Error{errno, "the memory cannot be registered"};
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    const std::uint64_t name = offset == -1 ? address : static_cast<std::uint64_t>(offset);
    const Mapping mapping{name, {address, region->rkey, static_cast<std::uint32_t>(length)}};
    if (Result<void> told = link_->stream().offer_mapping(*index, mapping, link_->outlet());
        !told) {
        ibv_dereg_mr(region);
        return told.error();
    }
    mapped_.push_back({region, *index});
    return static_cast<off_t>(name);
}

// The peer is not told: what it writes from now on is refused and ends the connection.
Result<void> Socket::unmap(void* memory, std::size_t length) {
    const Lock lock(mutex_);
    const auto found = std::find_if(mapped_.begin(), mapped_.end(), [&](const Mapped& m) {
        return m.region->addr == memory && m.region->length == length;
    });
    if (found == mapped_.end()) return Error{EINVAL, "this memory is not mapped"};
    ibv_dereg_mr(found->region);
    mapped_.erase(found);
    return {};
}

Result<std::size_t> Socket::write_mapped(ByteView from, off_t offset, int flags) {
    Lock lock(mutex_);
    if (Result<void> open = check_open(); !open) return open.error();
    const bool blocking = blocking_ && (flags & MSG_DONTWAIT) == 0;
    const Deadline deadline = deadline_of(options_.send_timeout);
    std::size_t sent = 0;
    do {
        const auto partly = [&](const Error& why) {
            return sent != 0 ? Result<std::size_t>(sent) : Result<std::size_t>(why);
        };
        if (const int code = wait(lock, blocking, deadline, &Socket::can_write_mapped); code != 0)
            return partly({code, "no room to send"});
        if (failure() != 0) return partly({failure(), "the connection has failed"});
        if (!link_->stream().is_writable()) return partly({ECONNRESET, "the stream has ended"});
        Result<std::size_t> count = link_->stream().write_mapped(
            from.subspan(sent), static_cast<std::uint64_t>(offset) + sent, link_->outlet());
        if (!count) return partly(count.error());
        sent += *count;
    } while (sent < from.size());
    return sent;
}

}  // namespace feroce::rsockets
