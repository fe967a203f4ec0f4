#include "feroce/inbox.hpp"

#include <arpa/inet.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "rdma/connection_core.hpp"

namespace feroce::rdma {

struct Inbox::Slot : Operation, ListNode {
    Core* core = nullptr;
    LocalRegion memory;
    ibv_wc completion{};
};

class Inbox::Core {
public:
    Core(ConnectionCore& connection, Buffer memory, std::uint32_t messages, std::uint32_t bytes)
        : connection_(connection), memory_(std::move(memory)), slots_(messages) {
        for (std::uint32_t i = 0; i < messages; ++i) {
            slots_[i].core = this;
            slots_[i].memory = memory_.local(std::uint64_t{i} * bytes, bytes);
            slots_[i].complete = [](Operation& self, const ibv_wc& completion) {
                Slot& slot = static_cast<Slot&>(self);
                slot.core->on_arrival(slot, completion);
            };
        }
    }
    ~Core() {
        if (posted_ == 0) return;
        connection_.close(Error(ECONNABORTED, "this program ended the inbox of the connection"));
        connection_.drain();
    }
    Core(const Core&) = delete;
    Core& operator=(const Core&) = delete;

    Result<> post_all() {
        for (Slot& slot : slots_)
            if (Result<> posted = post(slot); !posted) return posted;
        return {};
    }
    // Nobody hears of a receive that cannot be posted again: the connection is closed then.
    Result<> post(Slot& slot) {
        Result<> posted = connection_.post_receive(slot.memory, slot);
        if (posted) ++posted_;
        return posted;
    }
    Slot* take() { return arrived_.pop_front(); }
    bool has_news() const { return !arrived_.empty() || posted_ == 0; }
    void wait(Next& next) { waiting_.push_back(next); }
    // To the coroutine that waits longest, or to the next one that asks.
    void deliver(Slot& slot) {
        Next* next = waiting_.pop_front();
        if (next == nullptr) return arrived_.push_back(slot);
        next->slot_ = &slot;
        next->finish();
    }
    Loop& loop() const { return connection_.loop(); }
    Error closed_error() const {
        if (connection_.cause()) return connection_.closed_error();
        return {ENOBUFS, "the program holds all messages of the inbox; let some of them end first"};
    }

private:
    void on_arrival(Slot& slot, const ibv_wc& completion) {
        --posted_;
        slot.completion = completion;
        if (connection_.judge(completion)) return deliver(slot);
        // The last flushed receive tells every waiter that there will be no more.
        while (posted_ == 0 && !waiting_.empty()) waiting_.pop_front()->finish();
    }

    ConnectionCore& connection_;
    Buffer memory_;
    std::vector<Slot> slots_;
    std::uint32_t posted_ = 0;
    List<Slot> arrived_;
    List<Next> waiting_;
};

Inbox::Arrival::~Arrival() {
    if (slot_ != nullptr) (void)slot_->core->post(*slot_);
}

std::span<const std::byte> Inbox::Arrival::bytes() const {
    return slot_->memory.bytes().first(is_write() ? 0 : slot_->completion.byte_len);
}

std::optional<std::uint32_t> Inbox::Arrival::immediate() const {
    if ((slot_->completion.wc_flags & IBV_WC_WITH_IMM) == 0) return std::nullopt;
    return ntohl(slot_->completion.imm_data);
}

bool Inbox::Arrival::is_write() const {
    return slot_->completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
}

Inbox::Inbox(std::unique_ptr<Core> core) : core_(std::move(core)) {}
Inbox::Inbox(Inbox&&) noexcept = default;
Inbox& Inbox::operator=(Inbox&&) noexcept = default;
Inbox::~Inbox() = default;

Result<Inbox> Inbox::create(Connection& connection, std::uint32_t messages, std::uint32_t bytes) {
    if (messages == 0 || bytes == 0)
        return Error(EINVAL, "an inbox needs at least one message of at least one byte");
    Result<Buffer> memory = connection.allocate(std::size_t{messages} * bytes);
    if (!memory) return memory.error();
    Inbox out(std::make_unique<Core>(connection.core(), *std::move(memory), messages, bytes));
    if (Result<> posted = out.core_->post_all(); !posted) return posted.error();
    return out;
}

Inbox::Next Inbox::next() {
    return Next(*core_);
}

Inbox::Next::Next(Core& core) : Limited(core.loop()), core_(core) {}

Inbox::Next::~Next() {
    if (slot_ != nullptr) core_.deliver(*slot_);
}

bool Inbox::Next::start(std::coroutine_handle<> handle, const Limits* outer) {
    if (core_.has_news()) {
        slot_ = core_.take();
        return false;
    }
    set_code(begin(handle, outer));
    if (code() != 0) return false;
    core_.wait(*this);
    return true;
}

Result<Inbox::Arrival> Inbox::Next::result() {
    if (slot_ != nullptr) return Arrival(*std::exchange(slot_, nullptr));
    if (code() == ETIMEDOUT) return Error(ETIMEDOUT, "no message came in time");
    if (code() != 0) return Error(code(), "the program asked to stop waiting for a message");
    return core_.closed_error();
}

}  // namespace feroce::rdma
