#include "port/port_entry.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <utility>

#include "port/clock.hpp"
#include "port/port_owner.hpp"

namespace feroce::port {
namespace {

// How often a process that waits for more slots looks whether the one that adds them has died.
constexpr Duration kGrowthGap = std::chrono::milliseconds(50);
// How long a guest waits for an answer at least.
constexpr Duration kAnswerGap = std::chrono::milliseconds(300);

void nap(std::uint32_t round) {
    // Longer each time, up to a few milliseconds; different processes drift apart by their pids.
    const long spread = (::getpid() * 7919L + round * 104'729L) % 200'000L;
    const timespec t{0, (100'000L << std::min(round, 5u)) + spread};
    ::nanosleep(&t, nullptr);
}

bool may_change(int code) {
    return code == EAGAIN || code == EADDRINUSE || code == ECONNREFUSED;
}

// The port is taken, as `taken` says. Perhaps its owner lets us in as a guest.
Result<RelaySeat> be_guest(std::uint16_t port, const Identity& identity, FormerSeat before,
                           Duration patience, Error taken) {
    const std::optional<std::uint32_t> owner = owner_of_udp_port(port);
    if (!owner || *owner == identity.user) return taken;  // A group of ours that is just dying.
    if (identity.sharing == Sharing::User)
        return Error{EADDRINUSE,
                     "UDP port 4791 is held by another user's processes, and FEROCE_SHARE=user "
                     "forbids to be their guest"};
    if (identity.sharing == Sharing::Default && identity.user == 0)
        return Error{EACCES,
                     "UDP port 4791 is held by processes of an ordinary user, who could read and "
                     "divert root's packets: end them, or trust them by FEROCE_SHARE=any"};
    Result<RelaySeat> seat = RelaySeat::ask(port, *owner, before, patience);
    // Nobody listens by that name: what holds the port is not Feroce.
    return !seat && seat.error().code == ECONNREFUSED ? Result<RelaySeat>(taken) : std::move(seat);
}

}  // namespace

Result<PortEntry> enter_port(std::uint16_t port, const Identity& identity, FormerSeat before,
                             Duration patience, const std::shared_ptr<ForkGate>& gate) {
    const Instant deadline = monotonic_now() + patience;
    for (std::uint32_t round = 0;; ++round) {
        Result<std::unique_ptr<PortGroup>> group = PortGroup::attempt(port, identity, gate);
        if (group) return PortEntry{std::move(*group), std::nullopt};
        Error error = group.error();
        if (error.code == EADDRINUSE) {
            // Where all processes wait for a core, one that soon asks again makes a relay answer
            // questions that nobody asks any more. But the process that answers may be stopped
            // then.
            const Duration left = std::max(kAnswerGap, (deadline - monotonic_now()) / 2);
            Result<RelaySeat> seat = be_guest(port, identity, before, left, error);
            if (seat) return PortEntry{nullptr, std::move(*seat)};
            error = seat.error();
        }
        if (!may_change(error.code) || monotonic_now() > deadline) return error;
        nap(round);
    }
}

// Hundreds may come at once, and the one that adds slots needs a core, too: the others look for
// what it has done, and only now and then whether it has died. While there is progress nobody gives
// up.
Result<SlotNumber> claim_slot(PortGroup& group, Duration patience) {
    Instant deadline = monotonic_now() + patience;
    for (;;) {
        const std::uint32_t before = group.table().chunks();
        Result<SlotNumber> slot = group.claim();
        const Instant now = monotonic_now();
        if (slot || slot.error().code != EAGAIN || now > deadline) return slot;
        std::uint32_t round = 0;
        while (group.table().chunks() == before && monotonic_now() < now + kGrowthGap) nap(round++);
        if (group.table().chunks() != before) deadline = monotonic_now() + patience;
    }
}

}  // namespace feroce::port
