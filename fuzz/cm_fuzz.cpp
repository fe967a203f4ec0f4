// A live ConnectionManager under any sequence of calls, times and MADs. The input is a program: one
// byte says what to do, the next ones are its operands. Ids count from 1, so that the input can
// name them, and what the manager sends to itself can be delivered, late, often or never. At the
// end everything is released, and nothing may be left. What a message may look like is the business
// of cm_mad_fuzz.
#include <deque>
#include <set>

#include "cm/connection_manager.hpp"
#include "program.hpp"

namespace {

using namespace feroce;
using namespace feroce::cm;

class Counting final : public RandomSource {
public:
    std::uint64_t next() override { return ++last_; }

private:
    std::uint64_t last_ = 0;
};

class Machine final : public MadPort, public EventSink {
public:
    explicit Machine(ByteView input) : program_(input) {}

    void send(const Gid& source, const Gid& destination, ByteView mad) override {
        ASSERT(mad.size() == wire::kMadSize);
        if (in_flight_.size() == 16) in_flight_.pop_front();
        in_flight_.push_back({source, destination, {}});
        std::copy(mad.begin(), mad.end(), in_flight_.back().mad.begin());
    }
    bool offer(const Gid&, const Gid&, ByteView mad, Origin) override {
        return std::to_integer<unsigned>(mad[40]) % 16 == 15;
    }
    void on_event(const Event& event) override {
        if (event.connection.raw == 0) return;  // A listener's.
        const bool fresh =
            event.type == EventType::ConnectRequest || event.type == EventType::SidrRequest;
        if (fresh) ASSERT(held_.insert(event.connection.raw).second);
        ASSERT(held_.contains(event.connection.raw));
        ASSERT(to_string(event.type)[0] != '?');
    }

    void run() {
        while (!program_.done()) {
            if (program_.byte() % 2 == 0)
                call();
            else
                arrive();
            ASSERT(manager_.connections() <= kConnections);
        }
        finish();
    }

private:
    static constexpr std::size_t kConnections = 12;
    struct Flying {
        Gid source;
        Gid destination;
        wire::MadBytes mad;
    };

    static Gid address(std::uint8_t choice) { return Gid::from_v4(0x7f000001u + choice % 3); }
    CommId id() { return {program_.byte() % 24u}; }

    void call() {
        switch (program_.byte() % 12) {
            case 0:
                (void)manager_.listen(now_, {.service = {program_.byte() % 4u}, .backlog = 3});
                return;
            case 1:
                return manager_.unlisten({program_.byte() % 8u});
            case 2:
                return connect();
            case 3:
                (void)manager_.accept(now_, id(), {.endpoint = {.qpn = {program_.byte()}}});
                return;
            case 4:
                (void)manager_.reject(now_, id(), {.private_data = program_.bytes(3)});
                return;
            case 5:
                (void)manager_.establish(now_, id());
                return;
            case 6:
                (void)manager_.disconnect(now_, id());
                return;
            case 7:
                (void)manager_.ask_for_time(now_, id(), program_.byte());
                return;
            case 8:
                (void)manager_.sidr_reply(now_, id(), {.qpn = {program_.byte()}});
                return;
            case 9:
                return release(id());
            case 10:
                return manager_.remove_address(address(program_.byte()));
            default:
                return resolve();
        }
    }
    void connect() {
        const Path path{.local = address(0), .remote = address(program_.byte()), .mtu = 3};
        const auto made = manager_.connect(now_, {.path = path,
                                                  .service = {program_.byte() % 4u},
                                                  .endpoint = {.qpn = {program_.byte()}}});
        if (made) ASSERT(held_.insert(made->raw).second);
    }
    void resolve() {
        const Path path{.local = address(0), .remote = address(program_.byte())};
        const auto made =
            manager_.sidr_request(now_, {.path = path, .service = {program_.byte() % 4u}});
        if (made) ASSERT(held_.insert(made->raw).second);
    }
    void release(CommId which) {
        held_.erase(which.raw);
        manager_.release(now_, which);
    }

    void arrive() {
        const std::uint8_t kind = program_.byte();
        if (kind % 4 == 0) return pass();
        if (kind % 4 == 1) return deliver();
        // A MAD with its attribute and the low bytes of its ids from here and the rest from there.
        wire::MadBytes mad{};
        const wire::MadHeader header{.attribute = static_cast<std::uint16_t>(0x10 + kind / 4 % 12)};
        header.emit(std::span<std::byte, wire::kMadSize>(mad).first<wire::MadHeader::kSize>());
        const ByteView body = program_.bytes(kind % 4 == 2 ? 24 : wire::kCmMessageSize);
        std::copy(body.begin(), body.end(), mad.begin() + wire::MadHeader::kSize);
        manager_.receive(now_, address(program_.byte()), address(0), mad);
    }
    void pass() {
        now_ += std::chrono::milliseconds(1) * (1u << program_.byte() % 16);
        manager_.run(now_);
        ASSERT(manager_.next_wakeup() > now_);
    }
    void deliver() {
        const std::uint8_t which = program_.byte();
        if (in_flight_.empty()) return;
        const std::size_t index = which / 2 % in_flight_.size();
        const Flying flying = in_flight_[index];
        if (which % 2 == 0)
            in_flight_.erase(in_flight_.begin() + static_cast<std::ptrdiff_t>(index));
        manager_.receive(now_, flying.source, flying.destination, flying.mad);
    }

    void finish() {
        for (const std::uint32_t held : std::set(held_)) release({held});
        while (manager_.next_wakeup() != kNever) {
            now_ = manager_.next_wakeup();
            manager_.run(now_);
            // A request that waited for a listener may have found one.
            for (const std::uint32_t held : std::set(held_)) release({held});
        }
        ASSERT(manager_.connections() == 0);
    }

    fuzz::Program program_;
    Counting random_;
    Instant now_{};
    std::set<std::uint32_t> held_;
    std::deque<Flying> in_flight_;
    ConnectionManager manager_{{.max_retries = 3,
                                .max_connections = kConnections,
                                .max_listeners = 4,
                                .max_waiting_requests = 3},
                               random_,
                               *this,
                               *this};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const ByteView input = std::as_bytes(std::span(data, size));
    Machine(input).run();
    return 0;
}
