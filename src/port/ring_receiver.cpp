#include "port/ring_receiver.hpp"

#include <sys/eventfd.h>

#include <utility>

#include "port/socket_calls.hpp"

namespace feroce::port {
namespace {

// A ring that is empty so often in a row is looked at again only when its writer says so: looking
// costs little, and being told costs both sides a shared cache line.
constexpr std::uint32_t kEmptyLooksMax = 256;

device::Datagram datagram(const RingReader::Packet& packet) {
    return {.bytes = packet.bytes,
            .source = packet.path.source,
            .destination = packet.path.destination,
            .traffic_class = packet.path.traffic_class,
            .sealed = false,
            .packets = packet.packets};
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
    if (link.reader) {
        read_rest(now, engine, link);
        // Of a writer that lives on nothing is owed here: it sends it by the new ring.
        if (link.writer != message.incarnation) read_left_behind(now, engine, link);
    }
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
    mapped_.add(message.from);
    new_.add(message.from);
}

void RingReceiver::drop(std::uint32_t slot) {
    links_[slot].reader.reset();
    links_[slot].file.unmap();
    links_[slot].empty_looks = 0;
    mapped_.remove(SlotSet::of(slot));
    hot_.remove(slot);
    new_.remove(slot);
    door().pending.remove(SlotSet::of(slot));
}

bool RingReceiver::take_begun() {
    if (new_.empty()) return false;
    const SlotSet begun = waiting(new_);
    if (begun.empty()) return false;
    new_ -= begun;
    warm_up_untold(begun);
    return true;
}

bool RingReceiver::poll(Instant now, device::Engine& engine) {
    // Most writers whose bits are set are hot already.
    const SlotSet called = (door().pending.load(std::memory_order_relaxed) & mapped()) - hot_;
    if (!called.empty()) [[unlikely]]
        warm_up(called);
    if (hot_.empty()) return false;
    bool any = false;
    SlotSet cold;
    // What has not begun yet waits for take_begun().
    (hot_ - new_).for_each([&](std::uint32_t slot) {
        Link& link = links_[slot];
        const bool some = read(now, engine, link);
        link.empty_looks = some ? 0 : link.empty_looks + 1;
        if (link.empty_looks >= kEmptyLooksMax) cold.add(slot);
        any |= some;
    });
    if (!cold.empty()) cool_down(cold);
    return any;
}

SlotSet RingReceiver::waiting(const SlotSet& slots) const {
    SlotSet out;
    slots.for_each([&](std::uint32_t slot) {
        if (links_[slot].reader->waiting()) out.add(slot);
    });
    return out;
}

void RingReceiver::warm_up(const SlotSet& slots) {
    const SlotSet warm = slots & mapped();
    (warm - hot_).for_each([this](std::uint32_t slot) { links_[slot].empty_looks = 0; });
    hot_ |= warm;
}

void RingReceiver::warm_up_untold(const SlotSet& slots) {
    door().pending.add(slots);
    warm_up(slots);
}

// See RingSender::call().
void RingReceiver::cool_down(const SlotSet& slots) {
    door().pending.remove(slots);
    hot_ -= slots;
    const SlotSet again = waiting(slots & mapped());
    if (!again.empty()) warm_up_untold(again);
}

bool RingReceiver::read(Instant now, device::Engine& engine, Link& link) {
    int count = 0;
    std::size_t bytes = 0;
    for (; count < kBatch && bytes < kBatchBytes; ++count) {
        const std::optional<RingReader::Packet> packet = link.reader->next();
        if (!packet) break;
        bytes += packet->bytes.size();
        engine.receive(now, datagram(*packet));
    }
    if (count > 0) link.reader->release();
    return count > 0;
}

// Bounded by the ring: its writer has left it.
bool RingReceiver::read_rest(Instant now, device::Engine& engine, Link& link) {
    bool any = false;
    for (std::uint32_t i = 0; i < detail::kRingSlots && read(now, engine, link); ++i) any = true;
    return any;
}

bool RingReceiver::read_left_behind(Instant now, device::Engine& engine, const Link& link) {
    std::uint32_t count = 0;
    for (; const auto packet = link.reader->left_behind(count); ++count)
        engine.receive(now, datagram(*packet));
    return count > 0;
}

SlotSet RingReceiver::departed() const {
    SlotSet out;
    mapped().for_each([&](std::uint32_t slot) {
        const Link& link = links_[slot];
        if (table_.incarnation(slot) != link.writer || !table_.has_living_owner(slot) ||
            link.reader->dead())
            out.add(slot);
    });
    return out;
}

bool RingReceiver::deliver_rest(Instant now, device::Engine& engine, const SlotSet& departed) {
    bool any = false;
    departed.for_each([&](std::uint32_t slot) {
        Link& link = links_[slot];
        any |= read_rest(now, engine, link);
        any |= read_left_behind(now, engine, link);
        drop(slot);
    });
    return any;
}

bool RingReceiver::has_pending() const {
    return !(door().pending.load(std::memory_order_seq_cst) & mapped()).empty();
}

void RingReceiver::arm() {
    sleeps_.store(true, std::memory_order_relaxed);
    door().armed.store(SlotTable::tag_of(table_.incarnation(slot_)));
    if (!hot_.empty()) cool_down(SlotSet(hot_));
    if (has_pending() && door().armed.exchange(0) != 0) ring(bell_.get());
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
    return sleeps_.load(std::memory_order_relaxed) && has_pending();
}

}  // namespace feroce::port
