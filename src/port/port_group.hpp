// PortGroup: how the processes of one user share UDP port 4791 without a daemon. The port is a
// group of SO_REUSEPORT sockets, one a slot; a filter in the kernel steers a datagram to the socket
// of the slot in its destination QPN. Every member holds the lots where the sockets lie
// (socket_lot.hpp), and of the sockets only those that it reads. Slots are claimed in a table of
// locks (slot_table.hpp). The first process founds the group with one chunk of slots; one that
// finds none free adds a chunk. Every member hands the fds to newcomers over a shared listening
// socket; the last death removes everything. Slot 0 belongs to nobody: connection requests land
// there. Processes of other users get a relay instead.
//
// On a kernel that takes no filter a group has one member with one socket, and others are told.
//
// Never connect() a group socket (it would reshuffle the group), never give one to another user
// (who could divert the traffic).
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "base/random.hpp"
#include "base/result.hpp"
#include "device/port.hpp"
#include "port/estates.hpp"
#include "port/fd.hpp"
#include "port/fork_gate.hpp"
#include "port/identity.hpp"
#include "port/slot_table.hpp"
#include "port/socket_lot.hpp"
#include "port/ties.hpp"

namespace feroce::port {

class RelayServer;

// A connection to the group of that user, whoever of it answers. ECONNREFUSED: there is none.
Result<Fd> connect_to_group(std::uint16_t port, std::uint32_t user);

class PortGroup final : private ForkGate::Holder {
public:
    // Once: joins the group of that user or founds it. EAGAIN: others are at it just now;
    // EADDRINUSE: the port is taken, by another user or by a group that is just dying.
    static Result<std::unique_ptr<PortGroup>> attempt(std::uint16_t port, const Identity& identity,
                                                      const std::shared_ptr<ForkGate>& gate);
    ~PortGroup();
    PortGroup(const PortGroup&) = delete;
    PortGroup& operator=(const PortGroup&) = delete;

    // A slot of our own, drained of what was sent to its last owner. EAGAIN: another process is
    // just adding slots. Not thread-safe.
    Result<SlotNumber> claim();
    bool has_claimed() const { return !claimed().empty(); }
    void release(SlotNumber slot);
    SlotTable& table() { return table_; }
    Estates& estates() { return estates_; }
    void inherit(std::vector<cm::Bond>& out) { estates_.inherit(claimed(), out); }  // As claim().

    // One more chunk of slots, by us or another process. EAGAIN as above; EUSERS: there are all.
    // Any thread.
    Result<void> grow();
    // For the holder of a slot, and for slot 0: gets its sockets. False with errno.
    bool open_sockets(SlotNumber slot);
    void close_sockets(SlotNumber slot);

    // `noticed` is called by look_for_deaths() while members have left something (estates.hpp). It
    // must not block. Before the first look.
    void watch_for_deaths(std::function<void()> noticed);
    // False if nothing was left, or nobody is to be told. Any thread.
    bool look_for_deaths();
    // Of a slot that this process has claimed, until it is released.
    Ties& ties(SlotNumber slot) { return *ties_[slot]; }
    // Which of those looks for deaths, and is tied to its nearest; 0: none. For others than the
    // claimer a hint.
    SlotNumber watcher() const { return watcher_.load(kRelaxed); }
    bool owns(SlotNumber slot) const { return claimed().has(slot); }

    int socket_v4(SlotNumber slot) const { return v4_[slot].get(); }
    int socket_v6(SlotNumber slot) const { return v6_[slot].get(); }  // -1 without IPv6.
    bool has_v6() const { return with_v6_; }

    // Serves processes of other users, too; before the first serve(). For `requests_wanted` see
    // relay_server.hpp; it and the randomness outlive the group.
    void share_with_others(RandomSource& random, std::function<void()> requests_wanted);
    // Whether this other process belongs to the group: by its user, or because it owns a slot,
    // which it keeps when it changes its user.
    bool has_member(const ucred& process) const;

    // Readable when somebody wants to join; any member may serve(), which never blocks. Any thread.
    // False: this process may pass on no descriptors, so it should leave newcomers to other members
    // for a while.
    int listener() const { return listener_.get(); }
    bool serve();
    void admit_guest(Fd connection, std::uint32_t user);  // Closed if there is no relay.

    std::uint32_t user() const { return identity_.user; }
    int parcel_sender() const { return parcels_.get(); }  // -1: none could be made.
    // A packet that landed in the wrong process goes to the owner of its slot; false if it cannot.
    bool hand_over(const device::Datagram& packet);

    ForkGate& fork_gate() const { return *gate_; }

private:
    PortGroup(std::uint16_t port, const Identity& identity, std::shared_ptr<ForkGate> gate);
    void abandon() override;
    void close_all();
    Result<void> join(int connection);
    Result<void> found(Fd listener);
    Result<void> adopt(const int* fds, bool with_v6);
    SlotNumber lock_free_slot();  // 0: none.
    Result<void> bind_first_chunk();
    Result<void> bind_chunk(std::uint32_t chunk);
    Result<void> count_sockets(std::uint32_t chunks) const;
    bool hand_sockets_to(int newcomer) const;  // As serve().
    SlotSet claimed() const { return claimed_.load(kRelaxed); }

    // Without steering the port is one process's, by the socket of this slot.
    static constexpr SlotNumber kLoneSlot = 1;

    std::uint16_t port_;
    Identity identity_;
    std::shared_ptr<ForkGate> gate_;
    bool steered_ = true;  // The kernel took the filter.
    bool with_v6_ = false;
    Fd listener_;
    SlotTable table_;
    std::array<Fd, kChunks> lots_;
    // Those of slot 0 and of slots that this process holds, as a member or as a relay.
    std::array<Fd, kSlots> v4_;
    std::array<Fd, kSlots> v6_;
    std::mutex growth_mutex_;  // The table's lock does not exclude threads of one process.
    Fd parcels_;               // Sends what is handed over.
    Estates estates_{table_};
    static constexpr std::memory_order kRelaxed = std::memory_order_relaxed;
    // Slots that this process owns; its locks do not exclude it. Changed by one thread at a time;
    // for others a hint. The same holds for the next.
    SharedSlotSet claimed_;
    std::atomic<SlotNumber> watcher_{0};
    std::array<std::unique_ptr<Ties>, kSlots> ties_;  // Of those.
    std::function<void()> death_noticed_;             // Empty: nobody is told.

    RandomSource* random_ = nullptr;
    std::function<void()> requests_wanted_;  // Empty: other users are not served.
    std::mutex relay_mutex_;                 // Guards the making of relay_.
    std::unique_ptr<RelayServer> relay_;     // Since the first guest.
};

}  // namespace feroce::port
