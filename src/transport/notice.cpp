#include "transport/notice.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/assert.hpp"
#include "transport/qp_state.hpp"

namespace feroce::transport {

namespace {

template <class... T>
std::string print(const char* format, T... values) {
    char text[320];
    std::snprintf(text, sizeof text, format, values...);
    return text;
}

}  // namespace

std::string describe_send_error(int error, const Gid& source, const Gid& destination) {
    const std::string from = to_string(source);
    const std::string to = to_string(destination);
    const std::string name = std::string(" (") + ::strerrorname_np(error) + ")";
    switch (error) {
        case EADDRNOTAVAIL:
        case EINVAL:
            return "the address " + from + " is no longer on this machine" + name;
        case EMFILE:
        case ENFILE:
            return "no file descriptor is left for a socket to send from: raise the limit on open "
                   "files (ulimit -n)" +
                   name;
        case EMSGSIZE:
            return "packets of this path MTU are too long for the interface" + name;
        case ENETUNREACH:
            return "there is no route to " + to + name;
        case EHOSTUNREACH:
            return to + " is not to be found on its network" + name;
        case EPERM:
            return "a firewall of this machine forbids packets to " + to + name;
        case ENETDOWN:
        case ENODEV:
            return "the interface of " + from + " is down" + name;
        default:
            return "the kernel refuses packets to " + to + name;
    }
}

std::string describe(const Notice& n) {
    const std::string source = to_string(n.source);
    switch (n.kind) {
        case NoticeKind::None:
            break;
        case NoticeKind::NoReceive:
            return print(
                "QP 0x%06x had no receive posted for its peer's message at PSN %u: it asked the "
                "peer to wait, %u times",
                n.qpn.raw, n.psn.raw(), n.count);
        case NoticeKind::WrongState:
            return print(
                "QP 0x%06x is in state %s, where it takes no requests: %u packets from %s were "
                "dropped, the last with PSN %u",
                n.qpn.raw, name_of(n.state), n.count, source.c_str(), n.psn.raw());
        case NoticeKind::NoSuchQp:
            return print(
                "there is no QP 0x%06x: %u packets from %s were dropped, the last with PSN %u",
                n.qpn.raw, n.count, source.c_str(), n.psn.raw());
        case NoticeKind::DestroyedQp:
            return print(
                "QP 0x%06x was destroyed: %u packets from %s came later and were dropped, the last "
                "with PSN %u",
                n.qpn.raw, n.count, source.c_str(), n.psn.raw());
        case NoticeKind::WrongSource:
            return print(
                "QP 0x%06x is connected to %s: %u packets that came from %s were dropped, the last "
                "with PSN %u",
                n.qpn.raw, to_string(n.destination).c_str(), n.count, source.c_str(), n.psn.raw());
        case NoticeKind::AnswersLost:
            return print(
                "QP 0x%06x did and answered its peer's request at PSN %u and was asked for it %u "
                "times more: packets arrive from %s, answers are lost on the way back",
                n.qpn.raw, n.psn.raw(), n.count, source.c_str());
        case NoticeKind::FirstPsn:
            return print(
                "QP 0x%06x has taken nothing yet and expects PSN %u, its rq_psn, but the packets "
                "of its peer at %s begin with PSN %u: the peer's sq_psn must be this rq_psn",
                n.qpn.raw, n.expected.raw(), source.c_str(), n.psn.raw());
        case NoticeKind::UnreceivedDatagram:
            return print(
                "QP 0x%06x dropped %u datagrams of QP 0x%06x at %s: it had no receive posted",
                n.qpn.raw, n.count, n.peer.raw, source.c_str());
        case NoticeKind::LongDatagram:
            return print(
                "QP 0x%06x dropped %u datagrams of QP 0x%06x at %s: the receive of %u bytes has no "
                "room for the GRH of 40 bytes and %u bytes of payload",
                n.qpn.raw, n.count, n.peer.raw, source.c_str(), n.found, n.wanted);
        case NoticeKind::WrongQkey:
            return print(
                "QP 0x%06x dropped %u datagrams of QP 0x%06x at %s: they have the Q_Key 0x%x, its "
                "own is 0x%x",
                n.qpn.raw, n.count, n.peer.raw, source.c_str(), n.found, n.wanted);
        case NoticeKind::CompletionsLost:
            return print(
                "completions of QP 0x%06x were lost: its completion queue of %u entries was full; "
                "poll it more often or make it larger",
                n.qpn.raw, n.wanted);
        case NoticeKind::SendRefused:
            return print("QP 0x%06x cannot send: ", n.qpn.raw) +
                   describe_send_error(n.error, n.source, n.destination);
    }
    ASSERT(false);
    return "";
}

std::size_t NoticeLog::place(Qpn qpn, NoticeKind kind) {
    // Spread by a multiplier without structure; the top bits are the best mixed.
    const std::uint32_t mixed = (qpn.raw * 16 + static_cast<std::uint32_t>(kind)) * 0x9e37'79b1U;
    return mixed >> 26;
}
static_assert(NoticeLog::kCapacity == 1U << (32 - 26));

void NoticeLog::note(const Notice& notice) {
    Notice& slot = notices_[place(notice.qpn, notice.kind)];
    const bool same = slot.kind == notice.kind && slot.qpn == notice.qpn &&
                      slot.peer == notice.peer && slot.expected == notice.expected;
    // Of a flight that is repeated, the oldest packet tells how often.
    const std::int32_t younger = distance(slot.psn, notice.psn);
    const bool repeats =
        notice.kind == NoticeKind::AnswersLost || notice.kind == NoticeKind::FirstPsn;
    if (same && repeats && younger > 0) return;
    const std::uint32_t before = same && (!repeats || younger == 0) ? slot.count : 0;
    slot = notice;
    slot.count = before + 1;
}

void NoticeLog::settle(Qpn qpn, Psn expected) {
    for (const NoticeKind kind :
         {NoticeKind::NoReceive, NoticeKind::AnswersLost, NoticeKind::FirstPsn}) {
        Notice& slot = notices_[place(qpn, kind)];
        const bool found = slot.kind == kind && slot.qpn == qpn;
        if (found && slot.expected != expected) slot = Notice{};
    }
}

}  // namespace feroce::transport
