// RelayServer: how a port group serves processes of other users. Such a guest never holds a socket
// of the group, because whoever holds one can divert the traffic of all. It keeps a connection to
// one member instead and gets a slot that is kept for guests; the member reads that slot's sockets
// and passes on what arrives there, and only what is addressed there. Guests send from sockets of
// their own. When the member goes, the guest asks another for the same slot and goes on. It does
// so, too, when the member is stopped: that one still has the slot's lock, but the guest's token
// shows whose slot it is, and every member can get its sockets; the new relay locks it when the old
// one lets go.
//
// A thread of its own does this, so guests cost the member's engine nothing. A guest that does not
// read is not waited for: its datagrams stay in its slot's socket, which overflows alone. Who gets
// which slot is seat_policy.hpp's; one that says more than a guest has to say loses its seat.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/random.hpp"
#include "port/fd.hpp"
#include "port/seat_policy.hpp"
#include "port/slot_table.hpp"
#include "port/thread.hpp"
#include "port/udp_receiver.hpp"

namespace feroce::port {

class PortGroup;

// What a guest says over its connection, and the answer to Ask.
struct GuestMessage {
    static constexpr std::uint32_t kMagic = 0xfe0c'e103;  // Changes with the layout of parcels too.
    // AreYouThere: only to be read (relay_watch.hpp).
    enum class Kind : std::uint32_t { Ask, Answer, WantRequests, AreYouThere };
    std::uint32_t magic = kMagic;
    Kind kind = Kind::Ask;
    std::uint32_t slot = 0;    // Ask: the one it had before, 0 for any. Answer: its slot.
    std::int32_t refusal = 0;  // Answer: an errno if there is no slot.
    // Answer: what members of the group know the guest by. Ask: that of the seat it had before.
    std::uint64_t token = 0;
};

class RelayServer {
public:
    // The group outlives it. `requests_wanted`: a guest has a connection manager, so somebody must
    // read the connection requests; called by the relay's thread as often as guests like, so it
    // must neither block nor cost anything but the first time.
    static std::unique_ptr<RelayServer> start(PortGroup& group, RandomSource& random,
                                              std::function<void()> requests_wanted);
    ~RelayServer();
    void stop();  // Ends its thread.

    void admit(Fd connection, std::uint32_t user);  // Any thread.
    void abandon();                                 // In a forked child: see ForkGate::Holder.

private:
    struct Guest {
        Fd connection;
        std::uint32_t user = 0;
        SlotNumber slot = 0;  // 0: has not asked yet.
        std::uint64_t token = 0;
        bool has_lock = false;  // Of its slot: not while a stopped relay holds it.
        // It had the slot before, by `former_token`, and has not said a word since: it may have
        // given up on the answer, and will ask again.
        bool returns = false;
        std::uint64_t former_token = 0;
        MessageRate messages;
        std::optional<UdpReceiver> v4;
        std::optional<UdpReceiver> v6;
        // Parcels that found the connection full. While there are any, its sockets are not read.
        std::deque<std::vector<std::byte>> blocked;
    };
    using Id = std::uint32_t;

    RelayServer(PortGroup& group, RandomSource& random, std::function<void()> requests_wanted)
        : group_(group), random_(random), requests_wanted_(std::move(requests_wanted)) {}
    bool open();
    void body();
    void handle(std::uint64_t source, std::uint32_t events);
    void take_arrivals();
    bool has_room_for(std::uint32_t user) const;
    void hear(Id id, Guest& guest);
    void seat(Id id, Guest& guest, const GuestMessage& ask);
    void sit(Guest& guest, std::uint32_t slot, Instant now);
    void write_seat(const Guest& guest, Instant now);
    void confirm(Guest& guest);
    int make_seat(Id id, Guest& guest, const GuestMessage& ask);  // 0, or why it is refused.
    int find_slot(Guest& guest, const GuestMessage& ask);         // The same.
    bool may_grow() const;
    bool take(Guest& guest, std::uint32_t slot, bool again, Instant now);
    bool take_over(Guest& guest, const GuestMessage& ask, Instant now);
    void lock_slots(Instant now);
    bool lacks_locks() const;
    bool holds(std::uint32_t slot) const;
    void mark_orphans(Instant now);
    std::vector<GuestSlot> look_at_slots() const;
    bool watch_sockets(Id id, Guest& guest, bool on);
    void forward(Id id, Guest& guest, UdpReceiver& from);
    void pass_on(Id id, Guest& guest, const device::Datagram& datagram, std::size_t segment_size);
    bool resume(Id id, Guest& guest);  // False: it would be deaf.
    void take_parcels();
    void dismiss(Id id);
    void give_up_seat(const Guest& guest);

    PortGroup& group_;
    RandomSource& random_;
    std::function<void()> requests_wanted_;
    Fd epoll_;
    Fd doorbell_;
    Fd parcels_;  // Where members hand us what is for our guests.
    sockaddr_un parcels_name_{};
    std::map<Id, Guest> guests_;  // The thread's own, as all above.
    Id next_id_ = 1;
    SeatingRate seatings_;
    std::vector<std::byte> buffer_;

    std::mutex mutex_;  // Guards arrivals_ and stop_.
    std::vector<std::pair<Fd, std::uint32_t>> arrivals_;
    bool stop_ = false;
    std::unique_ptr<Thread> thread_;
};

}  // namespace feroce::port
