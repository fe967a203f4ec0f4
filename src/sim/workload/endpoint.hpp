// Endpoint: one side of a connection: a queue pair, its memory, the operations it has under way and
// a memory window that its peer may write through and invalidate. Tells the checkers of every step.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/workload/slots.hpp"
#include "sim/workload/station.hpp"
#include "sim/workload/swarm.hpp"

namespace feroce::sim {

class Endpoint {
public:
    Endpoint(Context& context, Station& station, const ConnectionPlan& plan,
             transport::QpType type);

    void lay_out();  // Takes its memory, once.
    void set_peer(Endpoint* peer) { peer_ = peer; }

    void open();  // Registers memory and makes the queue pair, if it was not reset.
    bool is_open() const { return qp_ != nullptr; }
    transport::QueuePair* qp() { return qp_; }
    Station& station() { return station_; }
    device::CompletionQueue* own_cq() { return own_cq_.get(); }  // Null if it has none.
    bool has_own_srq() const {
        return context_.swarm.own_queues && plan_.shared_receives && type_ == transport::QpType::Rc;
    }
    // Its receives come from a queue that other queue pairs use too.
    bool takes_from_others() const { return shares_receives() && !has_own_srq(); }
    std::uint32_t node() { return station_.node().id(); }

    void allow(std::uint32_t operations) {
        budget_ = type_ == transport::QpType::XrcTarget ? 0 : operations;
    }
    bool idle() const { return budget_ == 0 && operations_.empty(); }
    std::string describe();  // What it still waits for.
    void turn();             // Posts what there is room for.

    void on_send_completion(const transport::Completion& completion, const Allowance& allowance);
    void on_receive_completion(const transport::Completion& completion, const Allowance& allowance);

    enum class Victim : std::uint8_t { Local, Target };
    bool deregister(Victim victim);  // Under the work. False if a window stands on it.

    void destroy();       // The queue pair as it is; requests under way are forgotten.
    void reset();         // Likewise, but to be opened again.
    void settle();        // After both sides are destroyed: nothing can change memory any more.
    void fail_if_busy();  // Everything must have completed.

private:
    struct Operation {
        transport::SendOp op = transport::SendOp::Send;
        std::optional<std::size_t> local;   // Slot.
        Range range;                        // In it.
        std::optional<std::size_t> target;  // Slot of the peer.
        Range target_range;
        Pattern pattern;
        WordKey word;
        std::uint64_t expected = 0;  // What a compare-and-swap should find.
    };
    enum class Window : std::uint8_t { None, Free, Binding, Bound, Invalidating };

    // endpoint_post.cpp
    bool post_one();
    std::vector<transport::SendOp> choices() const;
    bool prepare(Operation& op, transport::SendWr& wr);
    bool prepare_data(Operation& op, std::uint32_t length);
    bool prepare_write(Operation& op, transport::SendWr& wr);
    bool prepare_read(Operation& op, transport::SendWr& wr);
    bool prepare_atomic(Operation& op, transport::SendWr& wr);
    void prepare_bind(transport::SendWr& wr);
    void address_datagram(transport::SendWr& wr);
    std::uint32_t draw_length();
    std::vector<mem::Sge> pieces(Range range);
    bool submit(Operation& op, transport::SendWr& wr);
    void announce(const Operation& op, const transport::SendWr& wr);
    void open_ranges(const Operation& op, const transport::SendWr& wr);

    // endpoint.cpp
    void create_qp();
    void make_own_queues();
    void destroy_own_queues();
    void finish(const Operation& op, bool success);
    void finish_atomic(const Operation& op, bool success);
    void receive_payload(const transport::Completion& completion, Range place);
    QueueKey queue(bool receive);
    void forget();  // What the checkers know of its queues.
    bool shares_receives() const {
        return plan_.shared_receives || type_ == transport::QpType::XrcTarget;
    }
    ReceivePool& pool() {
        if (type_ == transport::QpType::XrcTarget) return station_.xrc_pool();
        return plan_.shared_receives && !has_own_srq() ? station_.shared_pool() : *own_pool_;
    }
    device::CompletionQueue& send_cq() { return own_cq_ ? *own_cq_ : station_.send_cq(); }
    device::CompletionQueue& receive_cq() {
        return own_cq_ && context_.swarm.one_cq ? *own_cq_ : station_.receive_cq();
    }
    bool reliable() const { return plan_.reliable(); }

    Context& context_;
    Station& station_;
    const ConnectionPlan& plan_;
    transport::QpType type_;
    Endpoint* peer_ = nullptr;
    transport::QueuePair* qp_ = nullptr;
    Slots locals_;
    Slots targets_;
    std::unique_ptr<ReceivePool> own_pool_;
    std::unique_ptr<device::CompletionQueue> own_cq_;
    std::unique_ptr<transport::ReceiveQueue> own_srq_;
    std::uint32_t word_ = 0;  // Of the peer's compare-and-swap.
    mem::RegionKeys local_keys_;
    mem::RegionKeys target_keys_;
    bool local_registered_ = false;
    bool target_registered_ = false;
    Window window_ = Window::None;
    RKey window_key_;
    std::uint32_t budget_ = 0;
    std::map<std::uint64_t, Operation> operations_;  // Under way, by request.
    std::optional<std::uint64_t> last_write_;        // Request whose target a READ may look at.
};

}  // namespace feroce::sim
