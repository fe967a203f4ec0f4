// Notices: what an end saw of a trouble that failed nothing of its own. The peer whose request met
// no receive, or whose packets came too early, only sees silence; here is what the silent end
// knows. Recorded on paths that drop or repeat a packet anyway, so the data path pays nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/gid.hpp"
#include "base/ids.hpp"
#include "base/psn.hpp"
#include "transport/types.hpp"

namespace feroce::transport {

enum class NoticeKind : std::uint8_t {
    None,
    NoReceive,    // The peer was asked to wait: no receive was posted.
    WrongState,   // Packets for a queue pair that takes none in its state.
    NoSuchQp,     // Requests for a queue pair that never was.
    DestroyedQp,  // Requests for one that was destroyed: often its peer ends a moment later.
    WrongSource,  // Packets for a queue pair that is connected to another address.
    AnswersLost,  // The peer asks again and again for what was done and answered.
    FirstPsn,     // Nothing was ever taken: the peer begins with another PSN than is expected.
    WrongQkey,    // Datagrams with another Q_Key than the queue pair's.
    UnreceivedDatagram,  // No receive was posted for a datagram.
    LongDatagram,        // It had no room in the posted receive, behind the 40 bytes of its GRH.
    CompletionsLost,     // The completion queue was full.
    SendRefused,         // The kernel does not take our packets.
};

// Which fields mean something depends on the kind.
struct Notice {
    NoticeKind kind = NoticeKind::None;
    QpState state = QpState::Reset;  // Of the queue pair.
    Qpn qpn;                         // Ours.
    Qpn peer;                        // 0 if unknown.
    Psn psn;                         // Of the last packet concerned.
    Psn expected;                    // NoReceive, AnswersLost: over once another PSN is expected.
    std::uint32_t count = 1;
    // Q_Key of the queue pair; entries of the completion queue; bytes of a datagram's payload.
    std::uint32_t wanted = 0;
    std::uint32_t found = 0;  // Q_Key of the datagram; bytes of the receive.
    int error = 0;            // SendRefused: an errno.
    Gid source;       // Where the packets came from; for SendRefused, whose address ours is.
    Gid destination;  // SendRefused: where they should have gone.
};

std::string describe(const Notice& notice);  // One sentence for a person.
// Why the kernel refuses packets on a path, as a clause.
std::string describe_send_error(int error, const Gid& source, const Gid& destination);

// One place for a queue pair and kind, by hash: a busy one overwrites another.
class NoticeLog {
public:
    static constexpr std::size_t kCapacity = 64;

    // Counts on if it is the same trouble as before: queue pair, peer, PSN expected, and for
    // AnswersLost the PSN itself.
    void note(const Notice& notice);
    // The queue pair expects this PSN now: what was about an earlier one is over.
    void settle(Qpn qpn, Psn expected);
    const std::array<Notice, kCapacity>& all() const { return notices_; }

private:
    static std::size_t place(Qpn qpn, NoticeKind kind);

    std::array<Notice, kCapacity> notices_{};
};

}  // namespace feroce::transport
