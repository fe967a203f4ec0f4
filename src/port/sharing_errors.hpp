// Why UDP port 4791 could not be shared: each sentence says what failed, why, and what to do.
#pragma once

#include <cerrno>

#include "base/result.hpp"
#include "port/slot_set.hpp"

namespace feroce::port {

inline constexpr Error kTooFewFds{
    EMFILE,
    "UDP port 4791 cannot be shared, because this process has too few file descriptors left: raise "
    "its limit of open files (ulimit -n)"};
static_assert(kMemberSlots == 263);
inline constexpr Error kAllTaken{
    EUSERS,
    "no slot of UDP port 4791 is left, because processes of this user have all 263: end some of "
    "them"};
inline constexpr Error kUnsteered{
    EUSERS,
    "no second slot of UDP port 4791 can be had, because this kernel cannot share the port "
    "(SO_ATTACH_REUSEPORT_CBPF): use one shard (FEROCE_SHARDS=1)"};
inline constexpr Error kOthers{
    EAGAIN,
    "more slots of UDP port 4791 cannot be added, because a process that does not share it by "
    "Feroce has bound it, too: find it with `ss -ulp` and end it"};
inline constexpr Error kGrowing{
    EAGAIN,
    "more slots of UDP port 4791 cannot be added, because another process is at it: try again, and "
    "if it is stopped, continue or end it"};
inline constexpr Error kNoTable{
    ENOENT,
    "more slots of UDP port 4791 cannot be added, because the kernel's table of sockets "
    "(/proc/net/udp) cannot be read: mount /proc, or start a process that has it first"};
inline constexpr Error kSilent{
    EAGAIN,
    "UDP port 4791 cannot be shared, because the processes that hold it do not answer: find them "
    "with `ss -xlp` and continue or end them"};
inline constexpr Error kNothingCame{
    EAGAIN,
    "UDP port 4791 cannot be shared, because the process that answered for it handed nothing over, "
    "as one does that is ending: try again"};
inline constexpr Error kMayNotPassOn{
    EAGAIN,
    "UDP port 4791 cannot be shared, because the process that answers for it may pass on no file "
    "descriptors while so many of its user are in flight: start it with a higher limit of open "
    "files (ulimit -n)"};
inline constexpr Error kCannotSteer{
    EBUSY,
    "UDP port 4791 cannot be shared, because this kernel cannot do it (SO_ATTACH_REUSEPORT_CBPF) "
    "and another process holds it: end that process"};
inline constexpr Error kOtherVersion{
    EPROTO,
    "UDP port 4791 cannot be shared, because processes of another version of Feroce hold it: end "
    "them (`ss -ulp` names them), or use their version"};
inline constexpr Error kNameTaken{
    EPERM,
    "UDP port 4791 cannot be shared, because another user has taken the name by which its "
    "processes meet: find the process with `ss -xlp` and end it"};

// Of a unix socket that could not be made, with the kernel's errno.
inline Error no_unix_socket(int code) {
    if (code == EMFILE || code == ENFILE) return {code, kTooFewFds.why};
    return {code,
            "UDP port 4791 cannot be shared, because the kernel refuses a unix socket: allow them "
            "to this process (seccomp, SELinux), or give it more memory"};
}

}  // namespace feroce::port
