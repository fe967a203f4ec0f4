// FarTraffic: what the unreliable machines have to do with far memory. What is sent is gathered
// ahead (GatherAhead), and what is received goes by Landings. Both are made when they are needed.
#pragma once

#include <cstdint>
#include <optional>

#include "transport/gather_ahead.hpp"
#include "transport/landings.hpp"
#include "transport/queue_pair.hpp"
#include "transport/send_error.hpp"

namespace feroce::transport {

class FarTraffic {
public:
    explicit FarTraffic(QueuePair& qp) : qp_(qp) {}

    // The payload of a packet of the oldest request. Far, and waits(): it is still to come.
    mem::Fault gather(std::uint64_t offset, ByteSpan into);
    // A bind or an invalidation, which is over when nothing is written through the old key any
    // more: else waits().
    SendFailure execute();
    bool waits() const { return waits_; }
    void on_copies() { waits_ = false; }

    // Messages are on their way to memory: what comes goes behind them.
    bool lands() const { return lands_; }
    // Whether that fault means that the message goes by add().
    bool takes(mem::Fault fault) const {
        return lands_ || (fault == mem::Fault::Far && qp_.services().copies != nullptr);
    }
    // See Landings. False: there is no room or no memory, and the message is lost.
    [[nodiscard]] bool add(const Landings::Target& target, std::uint64_t offset, ByteView bytes);
    [[nodiscard]] bool end(const Landings::Target& target,
                           const std::optional<Completion>& receive);
    void break_off();
    bool has_landed() const { return lands_ && landings()->has_landed(); }
    void settle(Instant now);

    void stop(Instant now);  // ERR: receives are flushed. RESET: all is forgotten.
    const char* check_invariants() const;

private:
    struct Sources final : FarWork {
        GatherAhead ahead;
        // A bind or an invalidation is executed, but copies started before this one may still write
        // through the old key.
        std::optional<mem::CopyToken> local_until;
    };
    Sources* sources() const { return static_cast<Sources*>(qp_.far_work().outbound.get()); }
    Landings* landings() const { return static_cast<Landings*>(qp_.far_work().inbound.get()); }
    Sources& make_sources();

    QueuePair& qp_;
    bool waits_ = false;  // The oldest request, for copies.
    bool lands_ = false;
};

}  // namespace feroce::transport
