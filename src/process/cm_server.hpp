// CmServer: the connection manager of this process as a service: one manager and the owners of its
// connections, between the queue pair its messages travel by, the rendezvous by which processes
// pass requests on, and the threads that bring what arrives: the shard's what was steered to it,
// the manager's own all else, and what the program's threads have taken.
//
// One lock guards the manager and the tables. It is taken before a shard's lock, never after: a
// shard that has something for us only rings. Messages are collected and leave before the lock is
// let go. Left behind in a forked child.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "cm/connection_manager.hpp"
#include "process/abi_call.hpp"
#include "process/cm_arrivals.hpp"
#include "process/cm_gsi.hpp"
#include "process/cm_service.hpp"
#include "process/cm_thread.hpp"
#include "process/process.hpp"

namespace feroce::process {

class CmServer final : public CmService, cm::MadPort, cm::EventSink, CmThread::Work {
public:
    // Keeps the process object open. Without a CmUser requests are refused.
    static Result<std::unique_ptr<CmServer>> start(Process& process);
    ~CmServer() override;

    CmUser* user(std::unique_ptr<CmUser> (*make)()) override;
    std::uint64_t random() override { return process_.host().random().next(); }
    void note_refusal(const char* call, const Error& error) override {
        process_.note_refusal(call, error, nullptr);
    }
    Result<Gid> source_for(const Gid& destination, std::uint32_t scope) override {
        return process_.host().source_for(destination, scope);
    }
    Result<PortLease> lease_port(wire::PortSpace space, const Gid& address,
                                 std::uint16_t port) override;
    void end_lease(const PortLease& lease) override;
    Result<cm::ListenerId> listen(const cm::ListenOptions& options, void* owner) override;
    void unlisten(cm::ListenerId listener) override;
    Result<void> connect(const cm::ConnectOptions& options, void* owner,
                         std::optional<cm::CommId>& out) override;
    Result<void> sidr_request(const cm::SidrRequestOptions& options, void* owner,
                              std::optional<cm::CommId>& out) override;
    void taken(cm::CommId id) override;
    Result<void> accept(cm::CommId id, const cm::AcceptOptions& options) override;
    Result<void> sidr_reply(cm::CommId id, const cm::SidrReplyOptions& options) override;
    Result<void> reject(cm::CommId id, const cm::RejectOptions& options) override;
    Result<void> establish(cm::CommId id) override;
    Result<void> disconnect(cm::CommId id) override;
    void release(cm::CommId id) override;

    // What is alive, for those who look for leaks.
    struct Census {
        std::size_t ids = 0;  // That the user holds.
        std::size_t listeners = 0;
        std::size_t connections = 0;  // Of the manager, those in timewait included.
        bool timer = false;           // The manager waits for some time to come.
    };
    Census census();

    void on_death();  // Others have left estates. Any thread; never blocks.
    void on_suspects(const cm::Suspects& peers);
    void on_interfaces_changed();  // Ends what stood on addresses that are gone.
    void finish();                 // At exit: tells the peers of connections that nobody ended.
    void abandon();                // In a forked child.

private:
    // The lock, held for one call or turn: what it caused leaves at its end.
    class Session {
    public:
        explicit Session(CmServer& server)
            : server_(server), lock_(server.mutex_), now_(server.process_.host().now()) {}
        ~Session() { server_.settle(now_); }
        cm::ConnectionManager& manager() { return *server_.manager_; }
        Instant now() const { return now_; }

    private:
        CmServer& server_;
        std::lock_guard<std::mutex> lock_;
        Instant now_;
    };

    using Owners = std::map<std::uint32_t, void*>;
    // A place for one of them, made beforehand: entering it cannot fail.
    static Owners::node_type place_for(void* owner);
    static void enter(Owners& owners, Owners::node_type place, std::uint32_t id);

    // What `ask` asks the manager for belongs to the owner before it hears of it.
    template <class Ask>
    Result<void> ask(void* owner, std::optional<cm::CommId>& out, Ask&& ask);

    explicit CmServer(Process& process) : process_(process) {}
    Result<void> open();
    std::set<Gid> local_addresses();
    Instant before_sleep() override;
    void turn(bool requests_waiting) override;
    void bring();  // Of the shard's thread.
    void settle(Instant now);
    void wake_if_late();

    void send(const Gid& source, const Gid& destination, ByteView mad) override;
    bool offer(const Gid& source, const Gid& destination, ByteView mad, cm::Origin origin) override;
    void on_event(const cm::Event& event) override;
    void on_bound(const cm::Bond& bond) override {
        if (estate_ != nullptr) estate_->keep(bond);
    }
    void on_unbound(cm::CommId id) override {
        if (estate_ != nullptr) estate_->forget(id);
    }
    std::uint64_t packets_received(Qpn qpn) override;
    bool ask_peer(Qpn qpn) override;
    void on_silence(Qpn qpn) override;
    // Calls `use` with a session of its shard and the queue pair, if there is one of that number.
    template <class Use>
    void with_qp(Qpn qpn, Use&& use);
    void inherit(Session& session);
    void send_all();
    void* owner_of(const cm::Event& event, bool of_listener) const;

    Process& process_;
    bool open_ = false;  // process_ is kept open.
    // Guarded by the lock, but for wait() and wake().
    std::unique_ptr<host::Rendezvous> rendezvous_;
    std::unique_ptr<host::Estate> estate_;  // Null where nobody would inherit.
    std::unique_ptr<CmGsi> gsi_;
    std::optional<CmArrivals> arrivals_;
    std::unique_ptr<CmThread> thread_;
    // Somebody may have died; at first nobody has looked. The wake-up that follows orders it.
    std::atomic<bool> death_{true};

    std::mutex mutex_;              // Guards everything below.
    std::unique_ptr<CmUser> user_;  // Null until somebody asks for it.
    std::optional<cm::ConnectionManager> manager_;
    Owners owners_;                      // By communication id.
    Owners listener_owners_;             // By listener id.
    void* starting_listener_ = nullptr;  // Whose listen() is under way.
    std::vector<CmDatagram> outbox_;     // Never grows: what is full is sent at once.
    Owners unwanted_;                    // Requests that the user has no use for.
    std::vector<cm::Bond> inherited_;    // Of the dead, whose peers are to be told.
    bool look_again_ = false;            // There was no memory for something: soon again.
    Instant thread_sleeps_until_ = kNever;
    std::set<Gid> addresses_;  // Of this machine, when we last looked.
};

}  // namespace feroce::process
