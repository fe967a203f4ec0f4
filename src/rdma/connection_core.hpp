// ConnectionCore: what a Connection refers to and what stays where it is: the rdma_cm id, how far
// it came, why it closed, and the transfers that wait for room in the send queue.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "feroce/connection.hpp"
#include "feroce/transfer.hpp"

namespace feroce::rdma {

class ConnectionCore final : public CmHandler {
public:
    enum class Stage : std::uint8_t { New, Addressed, Routed, Open };

    // Takes over the id. A passive one came with a request and is not answered yet.
    ConnectionCore(Loop& loop, rdma_cm_id* id, const ConnectionOptions& options, bool passive);
    ~ConnectionCore();
    ConnectionCore(const ConnectionCore&) = delete;
    ConnectionCore& operator=(const ConnectionCore&) = delete;

    Loop& loop() const { return loop_; }
    rdma_cm_id* id() const { return id_; }
    const ConnectionOptions& options() const { return options_; }
    bool is_open() const { return reached_ == Stage::Open && !cause_; }
    const std::optional<Error>& cause() const { return cause_; }
    const PrivateData& peer_data() const { return peer_data_; }
    PolledQueue& queue() const { return *queue_; }
    void set_peer_data(const PrivateData& data) { peer_data_ = data; }

    Result<> make_queue_pair();
    rdma_conn_param parameters(const PrivateData& data) const;
    // Until it has come so far; fails with why it closed, or ETIMEDOUT. `what` ends "while ...".
    Task<Result<>> reach(Stage wanted, const char* what);
    void mark_answered() { passive_ = false; }
    Signal& changed() { return changed_; }

    // Closes, for this reason if it is the first.
    void close(Error why);
    Result<> judge(const ibv_wc& completion);
    Error closed_error() const;
    Result<> post(std::span<Work> list, std::size_t* posted);
    Result<> post_receive(const Regions& into, Operation& operation);

    // Transfers.
    // Of the send queue; a new transfer has none while others wait.
    bool has_room(std::uint32_t work_requests, bool waited) const;
    bool queue_up(TransferBase& transfer);  // False if none is in flight, whose end makes room.
    void on_posted(std::uint32_t work_requests) { in_flight_ += work_requests; }
    void on_done(std::uint32_t work_requests);
    // Calls the operations that have completed until this one has; when the device must let go at
    // once.
    void flush(const TransferBase& transfer);
    // The same for everything that is posted. The connection is closed.
    void drain();
    Result<std::uint32_t> take_word();
    void give_word(std::uint32_t slot) { free_words_.push_back(slot); }
    LocalRegion word(std::uint32_t slot) const { return words_->local(slot * 8, 8); }

private:
    // The last of a queue that is flushed: all before it have completed.
    struct Marker : Operation {
        Marker() {
            complete = [](Operation& self, const ibv_wc& /*flushed*/) {
                static_cast<Marker&>(self).done = true;
            };
        }
        bool posted = false;
        bool done = false;
    };

    void on_cm_event(const CmEvent& event) override;
    Error connect_error(const CmEvent& event) const;
    void look_or_relax() noexcept;
    std::string peer_name() const;

    Loop& loop_;
    rdma_cm_id* id_;
    const ConnectionOptions options_;
    bool passive_;
    Stage reached_ = Stage::New;
    std::optional<Error> cause_;  // Set when it is closed.
    PrivateData peer_data_;
    std::optional<CompletionQueue> own_queue_;
    PolledQueue* queue_ = nullptr;  // Null until there is a queue pair.
    Signal changed_;                // reached_ or cause_.
    std::uint32_t in_flight_ = 0;   // Work requests of transfers.
    List<TransferBase> backlog_;
    Marker last_send_;  // Of drain(). A device that is slow may complete them after it.
    Marker last_receive_;
    std::optional<Buffer> words_;  // Results of atomics, made for the first of them.
    std::vector<std::uint32_t> free_words_;
};

}  // namespace feroce::rdma
