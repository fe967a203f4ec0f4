// What connection managers say to each other on QP 1, as a capture shows it: who asked whom for a
// connection, what came of it, and with which numbers. Pure, and bounded: of more exchanges than
// there is room for, the oldest are given out as if the capture ended.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "base/gid.hpp"
#include "base/psn.hpp"
#include "base/time.hpp"
#include "wire/cm_messages.hpp"

namespace feroce::cli {

struct Exchange {
    Gid caller;  // Sent the REQ, if that is in the capture.
    Gid callee;
    Duration begun{};
    Duration last{};
    bool is_datagram = false;  // SIDR: no connection follows.
    std::uint64_t service = 0;
    std::string what;  // What private data and service tell, as words; may be empty.
    std::uint32_t caller_qpn = 0;
    std::uint32_t callee_qpn = 0;
    std::optional<Psn> caller_psn;  // With which each wants the other to begin.
    std::optional<Psn> callee_psn;
    std::uint32_t mtu = 0;  // Bytes; 0: not known. Of the caller's REQ, as the next three.
    std::uint8_t retries = 0;
    std::uint8_t rnr_retries_of_callee = 0;  // That the callee is to make.
    std::uint8_t responder_resources = 0;
    std::optional<std::uint8_t> rnr_retries_of_caller;
    std::optional<std::uint8_t> callee_resources;
    // How often each message is there.
    std::uint32_t reqs = 0;
    std::uint32_t reps = 0;
    std::uint32_t rtus = 0;
    std::uint32_t mras = 0;
    std::uint32_t dreqs = 0;
    std::uint32_t dreps = 0;
    Gid leaver;  // Sent the first DREQ.
    bool leaver_is_caller = false;
    std::optional<wire::RejectReason> rejected;
    Gid rejecter;
    bool rejected_rep = false;
    std::optional<std::uint8_t> sidr_status;  // Not 0: refused.
};

class Exchanges {
public:
    // `over` gets every exchange that is forgotten before finish().
    using Over = std::function<void(const Exchange&)>;
    explicit Exchanges(Over over) : over_(std::move(over)) {}

    // A datagram to QP 1. Returns the exchange whose REP it is: both queue pairs are known then.
    const Exchange* on_message(Duration time, const Gid& source, const Gid& destination,
                               const wire::CmMad& mad);
    void finish();  // Gives all that are left to `over`.
    std::uint64_t forgotten() const { return forgotten_; }

private:
    static constexpr std::size_t kExchangesMax = 4'096;

    // The caller, the callee, and the caller's id.
    using Key = std::tuple<Gid, Gid, std::uint32_t>;
    struct Entry {
        Key key;
        Exchange exchange;
    };
    using Entries = std::list<Entry>;  // The one that was used last comes first.

    Exchange& open(const Key& key, Duration time);
    Exchange* find(const Gid& source, const Gid& destination, std::uint32_t local,
                   std::uint32_t remote, bool& by_caller);
    void on_req(Duration time, const Gid& source, const Gid& destination, wire::CmView message);
    void on_rej(const Gid& source, const Gid& destination, wire::CmView message, Duration time);
    const Exchange* on_rep(const Gid& source, const Gid& destination, wire::CmView message);
    void on_sidr(Duration time, const Gid& source, const Gid& destination, const wire::CmMad& mad);
    void on_other(const Gid& source, const Gid& destination, const wire::CmMad& mad);

    Over over_;
    Entries entries_;
    std::map<Key, Entries::iterator> index_;
    std::uint64_t forgotten_ = 0;
};

}  // namespace feroce::cli
