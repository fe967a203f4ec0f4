// Two live engines under packet edits. The input is a script: what is posted, and what happens to
// each packet on its way. Whatever a peer sends, no assertion fires, no byte outside a region
// changes, and no work request completes twice. The ICRC is not checked, or no edit would get past.
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "base/assert.hpp"
#include "script/two_nodes.hpp"

namespace {

using namespace feroce;
using sim::Frame;
using sim::FramePtr;
using transport::QueuePair;
using transport::SendOp;
using transport::SendWr;

constexpr std::uint32_t kHalf = 16384;

class Script {
public:
    Script(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

    bool empty() const { return at_ >= size_; }
    std::uint8_t byte() { return empty() ? std::uint8_t{0} : data_[at_++]; }
    std::uint32_t word() {
        const std::uint32_t high = byte();
        return high << 8 | byte();
    }

private:
    const std::uint8_t* data_;
    std::size_t size_;
    std::size_t at_ = 0;
};

class Fuzzer {
public:
    Fuzzer() : nodes_([this](const FramePtr& frame) { return edit(frame); }, config()) {}

    void run(const std::uint8_t* data, std::size_t size) {
        Script script(data, size);
        script_ = &script;
        open();
        for (int i = 0; i < 64 && !script.empty(); ++i) step(script);
        script_ = nullptr;  // From here on packets pass as they are.
        advance(std::chrono::milliseconds(20));
        close();
    }

private:
    static device::Engine::Config config() {
        device::Engine::Config config;
        config.verify_icrc = false;
        return config;
    }

    void open() {
        posted_.clear();
        seen_.clear();
        history_.clear();
        qa_ = &nodes_.a.create_qp();
        qb_ = &nodes_.b.create_qp();
        sim::ConnectOptions options;
        options.path_mtu = 256;
        options.timeout = 6;
        options.rnr_retry = 3;
        sim::connect({nodes_.a.node, *qa_, Psn(0xff'fff0)}, {nodes_.b.node, *qb_, Psn(5)}, options);
    }

    void close() {
        check(nodes_.a);
        check(nodes_.b);
        nodes_.a.destroy_qp(*qa_);
        nodes_.b.destroy_qp(*qb_);
    }

    void step(Script& script) {
        const std::uint8_t choice = script.byte();
        const bool from_a = (choice & 0x80) != 0;
        script::Party& party = from_a ? nodes_.a : nodes_.b;
        QueuePair& qp = from_a ? *qa_ : *qb_;
        switch (choice & 7) {
            case 0:
            case 1:
                return advance(std::chrono::microseconds(script.word() % 1024));
            case 2:
                return post_receive(party, qp, script);
            default:
                return post_send(party, from_a ? nodes_.b : nodes_.a, qp, script);
        }
    }

    void post_receive(script::Party& party, QueuePair& qp, Script& script) {
        const mem::Sge sge = party.sge(kHalf, script.word() % kHalf);
        const transport::ReceiveWr wr{next_id_++, {&sge, 1}};
        if (party.node.engine(0).post_receive(party.node.now(), qp, wr).has_value())
            posted_.insert(wr.wr_id);
    }

    void post_send(script::Party& party, script::Party& peer, QueuePair& qp, Script& script) {
        SendWr wr;
        wr.wr_id = next_id_++;
        wr.op = static_cast<SendOp>(script.byte() % 10);
        const bool is_word = wr.op == SendOp::CompareSwap || wr.op == SendOp::FetchAdd ||
                             wr.op == SendOp::AtomicWrite;
        const mem::Sge sge = party.sge(0, is_word ? 8 : script.word() % 4096);
        wr.signaled = true;
        wr.rkey = peer.keys.rkey;
        wr.remote_address = peer.iova(script.word() % (2 * kHalf + 64));
        wr.compare_add = 1;
        wr.sges = {&sge, 1};
        if (party.node.engine(0).post_send(party.node.now(), qp, wr).has_value())
            posted_.insert(wr.wr_id);
        party.node.wake();
    }

    void advance(Duration time) { nodes_.scheduler.run_until(nodes_.scheduler.now() + time); }

    FramePtr edit(const FramePtr& frame) {
        if (script_ == nullptr || script_->empty()) return frame;
        const std::uint8_t kind = script_->byte();
        auto copy = std::make_shared<Frame>(*frame);
        switch (kind & 7) {
            case 0:  // Lost.
                return nullptr;
            case 1:  // Another one in its place, of either direction.
                if (!history_.empty()) copy->bytes = history_[script_->byte() % history_.size()];
                break;
            case 2: {  // Any byte.
                const std::size_t at = script_->word() % copy->bytes.size();
                copy->bytes[at] ^= static_cast<std::byte>(script_->byte());
                break;
            }
            case 3:  // Another opcode.
                copy->bytes[0] = static_cast<std::byte>(script_->byte());
                break;
            case 4:  // Another place in the sequence.
                copy->bytes[11] ^= static_cast<std::byte>(script_->byte());
                break;
            case 5:  // Shorter.
                copy->bytes.resize(script_->word() % (copy->bytes.size() + 1));
                break;
            default:
                break;
        }
        if (history_.size() == 16) history_.erase(history_.begin());
        history_.push_back(frame->bytes);
        return copy;
    }

    void check(script::Party& party) {
        ASSERT(!party.node.arena().broken_guard().has_value());
        for (const transport::Completion& completion : party.poll()) {
            ASSERT(posted_.contains(completion.wr_id));
            ASSERT(seen_.insert(completion.wr_id).second);
        }
    }

    script::TwoNodes nodes_;
    QueuePair* qa_ = nullptr;
    QueuePair* qb_ = nullptr;
    Script* script_ = nullptr;
    std::uint64_t next_id_ = 1;
    std::set<std::uint64_t> posted_;
    std::set<std::uint64_t> seen_;
    std::vector<std::vector<std::byte>> history_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    // Engines are costly to make, so they stay; queue pairs are new for every input.
    static Fuzzer fuzzer;
    fuzzer.run(data, size);
    return 0;
}
