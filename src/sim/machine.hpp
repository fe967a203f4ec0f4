// Machine: a simulated computer for programs above the C ABI: fibers as threads, a network card, an
// address and memory. What runs on it sees it as a host::Host (machine_host.hpp).
//
// Its fibers run from the world's scheduler, one at a time. A fiber sleeps on a Bell, or until
// there is news: frames that came or were looked at, and what make_news() is called for. While
// paused nothing runs and the socket buffer fills.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "base/random.hpp"
#include "sim/fiber.hpp"
#include "sim/fixed_memory.hpp"
#include "sim/frame.hpp"
#include "sim/port.hpp"
#include "sim/scheduler.hpp"
#include "sim/trace.hpp"

namespace feroce::sim {

class MachinePort;

struct MachineConfig {
    std::size_t memory_bytes = 16 << 20;
    std::uint32_t mtu = 1500;
    // Between an arrival and the fiber that looks at it: frames come in batches.
    Duration wake_delay = std::chrono::microseconds(1);
    // A poller that finds nothing looks again after this long, news or not.
    Duration poll_interval = std::chrono::milliseconds(1);
    std::uint32_t socket_frames = 1024;
};

class Machine final : public FrameSink {
public:
    using Parts = SimPort::Parts;
    enum class Kind : std::uint8_t { Service, Program };  // Of the process object, or its user's.
    struct Strand;                                        // A fiber with what it waits for.

    // What one fiber at a time sleeps on. Not lost if nobody sleeps yet.
    class Bell {
    public:
        explicit Bell(Machine& machine) : machine_(machine) {}
        void ring(Duration delay = {});
        bool wait(Instant until);  // True if it rang.

    private:
        Machine& machine_;
        std::shared_ptr<Strand> sleeper_;
        bool rung_ = false;
    };

    Machine(const Parts& parts, const MachineConfig& config, std::uint32_t id, const Gid& address,
            std::uint64_t seed);
    ~Machine() override;  // Its fibers have ended.

    std::uint32_t id() const { return id_; }
    const Gid& address() const { return address_; }
    const MachineConfig& config() const { return config_; }
    // With an uplink that sends each frame through the rail of its source address.
    Parts parts() { return {parts_.scheduler, parts_.trace, rails_, parts_.groups}; }
    Instant now() const { return parts_.scheduler.now(); }
    Prng& random() { return random_; }
    std::pmr::memory_resource& memory() { return memory_.resource(); }

    // Of its first interface; whoever watches is told of a change. The network reaches the machine
    // by its first address whatever is here: what arrives is up to the receiver.
    const std::vector<Gid>& addresses() const { return addresses_; }
    void set_addresses(std::vector<Gid> addresses);

    // A further interface with an address and a cable of its own. Before its programs start.
    void add_rail(const Gid& address, FrameSink& uplink) { rails_.add(address, uplink); }
    // The addresses of further interfaces, in their order.
    const std::vector<Gid>& rail_addresses() const { return rails_.addresses(); }
    // The address on the network that the destination is on; the first if on none.
    Gid source_for(const Gid& destination) const;

    // Called around every run of one of its fibers: sets what is per process, calls, sets it back.
    using Around = std::function<void(const std::function<void()>& run)>;
    void set_around(Around around) { around_ = std::move(around); }

    std::shared_ptr<Strand> spawn(Kind kind, std::function<void()> body);
    static bool ended(const Strand& strand);
    void join(Strand& strand);  // Runs it until it ends, which it must without others' help.
    // Programs that still run are resumed once more, told by cancelled(), and must end.
    void cancel_programs();
    bool cancelled() const { return cancelled_; }

    // For the fiber that runs.
    void sleep_until(Instant until);
    void wait_for_news(Instant until);  // At once if there was some since it last waited.
    void make_news();

    void pause() { paused_ = true; }
    void resume();

    void attach(MachinePort& port);
    void detach(MachinePort& port);
    SlotNumber free_slot() const;
    void deliver(const FramePtr& frame) override;

private:
    class Rails final : public FrameSink {
    public:
        explicit Rails(FrameSink& first) : first_(first) {}
        void add(const Gid& address, FrameSink& uplink) {
            addresses_.push_back(address);
            uplinks_.push_back(&uplink);
        }
        const std::vector<Gid>& addresses() const { return addresses_; }
        void deliver(const FramePtr& frame) override;

    private:
        FrameSink& first_;
        std::vector<Gid> addresses_;
        std::vector<FrameSink*> uplinks_;
    };

    bool wait(const std::shared_ptr<Strand>& strand, Instant until);
    void wake(const std::shared_ptr<Strand>& strand, Instant when);
    void schedule(const std::shared_ptr<Strand>& strand, Instant when, bool woken);
    void run(const std::shared_ptr<Strand>& strand);
    std::shared_ptr<Strand> running() const;
    void drop_ended();

    Parts parts_;
    Rails rails_;
    MachineConfig config_;
    std::uint32_t id_;
    Gid address_;
    std::vector<Gid> addresses_;
    Prng random_;
    FixedMemory memory_;
    Around around_ = [](const std::function<void()>& run) { run(); };
    std::list<std::shared_ptr<Strand>> strands_;
    std::vector<std::shared_ptr<Strand>> held_;  // Due while paused.
    std::vector<MachinePort*> ports_;            // By slot, ascending.
    std::uint64_t news_ = 0;
    bool paused_ = false;
    bool cancelled_ = false;
};

}  // namespace feroce::sim
