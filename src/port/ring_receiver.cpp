#include "port/ring_receiver.hpp"

#include <sys/eventfd.h>

#include <bit>
#include <utility>

#include "port/socket_calls.hpp"

namespace feroce::port {
namespace {

// A ring that is empty so often in a row is looked at again only when its writer says so: looking
// costs little, and being told costs both sides a shared cache line.
constexpr std::uint32_t kEmptyLooksMax = 256;

constexpr std::uint64_t bit(std::uint32_t slot) {
    return std::uint64_t{1} << slot;
}

std::uint32_t first_of(std::uint64_t bits) {
    return static_cast<std::uint32_t>(std::countr_zero(bits));
}

}  // namespace

bool RingReceiver::open() {
    bell_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    return bell_.valid();
}

void RingReceiver::accept(Instant now, device::Engine& engine, const RingMessage& message,
                          Fd memory, int socket) {
    if (!table_.takes_rings(slot_) || table_.incarnation(message.from) != message.incarnation)
        return;
    Link& link = links_[message.from];
    // Bounded by the ring: its writer has left it.
    for (std::uint32_t i = 0; link.reader && i < detail::kRingSlots; ++i)
        if (!read(now, engine, link)) break;
    drop(message.from);
    if (!link.file.map(std::move(memory))) return;
    link.reader.emplace(link.file.memory());
    link.writer = message.incarnation;
    const RingMessage answer{.kind = RingMessage::Kind::Acceptance,
                             .from = slot_,
                             .incarnation = table_.incarnation(slot_),
                             .ring = message.ring};
    if (!send_ring_message(socket, table_, message.from, answer, bell_.get()))
        return drop(message.from);  // It will offer another one.
    set_mapped(mapped() | bit(message.from));
    new_ |= bit(message.from);
}

void RingReceiver::drop(std::uint32_t slot) {
    links_[slot].reader.reset();
    links_[slot].file.unmap();
    links_[slot].empty_looks = 0;
    set_mapped(mapped() & ~bit(slot));
    hot_ &= ~bit(slot);
    new_ &= ~bit(slot);
    door().pending.fetch_and(~bit(slot));
}

bool RingReceiver::take_begun() {
    if (new_ == 0) return false;
    std::uint64_t begun = 0;
    for (std::uint64_t rest = new_; rest != 0; rest &= rest - 1)
        if (links_[first_of(rest)].reader->waiting()) begun |= bit(first_of(rest));
    if (begun == 0) return false;
    new_ &= ~begun;
    warm_up_untold(begun);
    return true;
}

bool RingReceiver::poll(Instant now, device::Engine& engine) {
    if (mapped() == 0) return false;
    warm_up(door().pending.load(std::memory_order_relaxed));
    bool any = false;
    std::uint64_t cold = 0;
    // What has not begun yet waits for take_begun().
    for (std::uint64_t rest = hot_ & ~new_; rest != 0; rest &= rest - 1) {
        Link& link = links_[first_of(rest)];
        const bool some = read(now, engine, link);
        link.empty_looks = some ? 0 : link.empty_looks + 1;
        if (link.empty_looks >= kEmptyLooksMax) cold |= bit(first_of(rest));
        any |= some;
    }
    if (cold != 0) cool_down(cold);
    return any;
}

void RingReceiver::warm_up(std::uint64_t bits) {
    for (std::uint64_t rest = bits & mapped() & ~hot_; rest != 0; rest &= rest - 1)
        links_[first_of(rest)].empty_looks = 0;
    hot_ |= bits & mapped();
}

void RingReceiver::warm_up_untold(std::uint64_t bits) {
    door().pending.fetch_or(bits);
    warm_up(bits);
}

// See RingSender::call().
void RingReceiver::cool_down(std::uint64_t bits) {
    door().pending.fetch_and(~bits);
    hot_ &= ~bits;
    std::uint64_t waiting = 0;
    for (std::uint64_t rest = bits & mapped(); rest != 0; rest &= rest - 1)
        if (links_[first_of(rest)].reader->waiting()) waiting |= bit(first_of(rest));
    if (waiting != 0) warm_up_untold(waiting);
}

bool RingReceiver::read(Instant now, device::Engine& engine, Link& link) {
    int count = 0;
    std::size_t bytes = 0;
    for (; count < kBatch && bytes < kBatchBytes; ++count) {
        const std::optional<RingReader::Packet> packet = link.reader->next();
        if (!packet) break;
        bytes += packet->bytes.size();
        engine.receive(now, {.bytes = packet->bytes,
                             .source = packet->path.source,
                             .destination = packet->path.destination,
                             .traffic_class = packet->path.traffic_class,
                             .sealed = false});
    }
    if (count > 0) link.reader->release();
    return count > 0;
}

void RingReceiver::forget_departed() {
    for (std::uint64_t rest = mapped(); rest != 0; rest &= rest - 1) {
        const std::uint32_t slot = first_of(rest);
        const Link& link = links_[slot];
        const bool departed = table_.incarnation(slot) != link.writer;
        if (departed && link.reader->waiting())
            warm_up_untold(bit(slot));  // Its writer died before it could tell us.
        else if (departed || link.reader->dead())
            drop(slot);
    }
}

void RingReceiver::arm() {
    sleeps_.store(true, std::memory_order_relaxed);
    door().armed.store(SlotTable::tag_of(table_.incarnation(slot_)));
    if (hot_ != 0) cool_down(hot_);
    if ((door().pending.load() & mapped()) != 0 && door().armed.exchange(0) != 0) ring(bell_.get());
}

void RingReceiver::disarm() {
    sleeps_.store(false, std::memory_order_relaxed);
    door().armed.store(0, std::memory_order_relaxed);
}

void RingReceiver::answer_bell() {
    std::uint64_t count;
    (void)!::read(bell_.get(), &count, sizeof count);
}

bool RingReceiver::overlooked() const {
    return sleeps_.load(std::memory_order_relaxed) && (door().pending.load() & mapped()) != 0;
}

}  // namespace feroce::port
