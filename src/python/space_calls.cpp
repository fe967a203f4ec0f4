// The address space for C: joining, memory and names.
#include <cerrno>
#include <utility>

#include "python/arguments.hpp"
#include "python/space.hpp"
#include "python/surface.hpp"

namespace feroce::python {

namespace {

using gas::NodeId;
using gas::ptr;
using rdma::Task;

constexpr std::uint64_t kMostBytes = gas::kStepBytes;

rdma::Error too_many_bytes() {
    return {EMSGSIZE, "one operation carries at most 2 GiB"};
}

Task<void> alloc(std::shared_ptr<Call> call, Space::State& state, NodeId node, std::uint64_t size) {
    gas::Allocator& allocator = state.node.allocator();
    const auto made = co_await allocator.allocate_cleared(node, size);
    Outcome outcome(made);
    if (made) outcome.value = made->bits();
    if (call->finish(std::move(outcome)) || !made) co_return;
    static_cast<void>(co_await allocator.free(*made, size).shielded());
}

Task<void> give_back(std::shared_ptr<Call> call, Space::State& state, ptr<void> block,
                     std::uint64_t size) {
    call->finish(co_await state.node.allocator().free(block, size));
}

Task<void> read_memory(std::shared_ptr<Call> call, Space::State& state, ptr<std::byte> from,
                       std::uint64_t size) {
    if (size > kMostBytes) co_return fail(*call, too_many_bytes());
    Bytes data(size);
    auto step = state.node.lanes().chain(from.node());
    step.read(gas::span<std::byte>(from, size), data.data());
    Outcome outcome(co_await step);
    if (outcome.code == 0) outcome.data = std::move(data);
    call->finish(std::move(outcome));
}

Task<void> write_memory(std::shared_ptr<Call> call, Space::State& state, ptr<std::byte> to,
                        Bytes data) {
    if (data.size() > kMostBytes) co_return fail(*call, too_many_bytes());
    auto step = state.node.lanes().chain(to.node());
    step.write(gas::span<std::byte>(to, data.size()), data.data());
    call->finish(co_await step);
}

using Word = ptr<gas::nic<std::uint64_t>>;

Task<void> compare_swap(std::shared_ptr<Call> call, Space::State& state, Word word,
                        std::uint64_t expected, std::uint64_t desired) {
    const auto found = co_await state.node.lanes().compare_exchange(word, expected, desired);
    Outcome outcome(found);
    if (found) outcome.value = *found;
    call->finish(std::move(outcome));
}

Task<void> fetch_add(std::shared_ptr<Call> call, Space::State& state, Word word,
                     std::uint64_t amount) {
    const auto found = co_await state.node.lanes().fetch_add(word, amount);
    Outcome outcome(found);
    if (found) outcome.value = *found;
    call->finish(std::move(outcome));
}

Outcome told_pointer(const rdma::Result<ptr<void>>& pointer) {
    Outcome outcome(pointer);
    if (pointer) outcome.value = pointer->bits();
    return outcome;
}

rdma::Result<gas::NodeOptions> node_options_of(const feroce_space_options& given) {
    gas::NodeOptions out;
    if (given.rank < 0) {
        const auto placement = gas::placement_from_environment();
        if (!placement) return rdma::Error(placement.error());
        out.placement = *placement;
    } else {
        out.placement.rank = static_cast<std::uint16_t>(given.rank);
        out.placement.size = given.size;
        out.placement.seed = text_of(given.seed);
        out.placement.port = given.port;
    }
    if (out.placement.rank >= out.placement.size)
        return rdma::Error(EINVAL, "a rank is less than the number of nodes");
    out.memory = given.memory;
    out.patience = Duration(given.patience);
    out.silence = Duration(given.silence);
    return out;
}

}  // namespace

}  // namespace feroce::python

using namespace feroce::python;
using feroce::gas::NodeId;

feroce_handle feroce_space_join(feroce_handle queue, int64_t timeout,
                                const feroce_space_options* options) {
    return begun(queue, [&]() -> feroce_handle {
        auto given = node_options_of(*options);
        if (!given) return failed_call(queue, given.error());
        if (timeout >= 0) given->patience = std::min(given->patience, feroce::Duration(timeout));
        const auto call = Call::create(queue);
        if (!call) return 0;
        try {
            Space::join(call, *given);
        } catch (const std::exception&) {  // There is no thread for it.
            call->finish(error_of(std::current_exception()));
        }
        return call->handle();
    });
}

feroce_handle feroce_space_alloc(feroce_handle queue, int64_t timeout, feroce_handle space,
                                 uint32_t node, uint64_t size) {
    return begun(queue, [&]() -> feroce_handle {
        const NodeId on{static_cast<std::uint16_t>(node)};
        return call_of<Space>(queue, timeout, space,
                              [on, size](std::shared_ptr<Call> call, Space& of) {
                                  return alloc(std::move(call), of.state(), on, size);
                              });
    });
}

feroce_handle feroce_space_free(feroce_handle queue, int64_t timeout, feroce_handle space,
                                uint64_t pointer, uint64_t size) {
    return begun(queue, [&]() -> feroce_handle {
        const auto block = ptr<void>::from_bits(pointer);
        return call_of<Space>(queue, timeout, space,
                              [block, size](std::shared_ptr<Call> call, Space& of) {
                                  return give_back(std::move(call), of.state(), block, size);
                              });
    });
}

feroce_handle feroce_space_read(feroce_handle queue, int64_t timeout, feroce_handle space,
                                uint64_t pointer, uint64_t size) {
    return begun(queue, [&]() -> feroce_handle {
        const auto from = ptr<std::byte>::from_bits(pointer);
        return call_of<Space>(queue, timeout, space,
                              [from, size](std::shared_ptr<Call> call, Space& of) {
                                  return read_memory(std::move(call), of.state(), from, size);
                              });
    });
}

feroce_handle feroce_space_write(feroce_handle queue, int64_t timeout, feroce_handle space,
                                 uint64_t pointer, feroce_bytes data) {
    return begun(queue, [&]() -> feroce_handle {
        const auto to = ptr<std::byte>::from_bits(pointer);
        return call_of<Space>(
            queue, timeout, space,
            [to, bytes = copy_of(data)](std::shared_ptr<Call> call, Space& of) mutable {
                return write_memory(std::move(call), of.state(), to, std::move(bytes));
            });
    });
}

feroce_handle feroce_space_compare_swap(feroce_handle queue, int64_t timeout, feroce_handle space,
                                        uint64_t pointer, uint64_t expected, uint64_t desired) {
    return begun(queue, [&]() -> feroce_handle {
        const auto word = Word::from_bits(pointer);
        return call_of<Space>(queue, timeout, space,
                              [word, expected, desired](std::shared_ptr<Call> call, Space& of) {
                                  return compare_swap(std::move(call), of.state(), word, expected,
                                                      desired);
                              });
    });
}

feroce_handle feroce_space_fetch_add(feroce_handle queue, int64_t timeout, feroce_handle space,
                                     uint64_t pointer, uint64_t amount) {
    return begun(queue, [&]() -> feroce_handle {
        const auto word = Word::from_bits(pointer);
        return call_of<Space>(queue, timeout, space,
                              [word, amount](std::shared_ptr<Call> call, Space& of) {
                                  return fetch_add(std::move(call), of.state(), word, amount);
                              });
    });
}

feroce_handle feroce_space_publish(feroce_handle queue, int64_t timeout, feroce_handle space,
                                   const char* name, uint64_t pointer, uint64_t size) {
    return begun(queue, [&]() -> feroce_handle {
        const auto memory = ptr<void>::from_bits(pointer);
        return call_alone(queue, timeout, space,
                          [called = text_of(name), memory, size](Space::State& state) -> Outcome {
                              return state.node.publish_memory(called, memory, size);
                          });
    });
}

feroce_handle feroce_space_find(feroce_handle queue, int64_t timeout, feroce_handle space,
                                const char* name, uint64_t size) {
    return begun(queue, [&]() -> feroce_handle {
        return call_alone(queue, timeout, space,
                          [called = text_of(name), size](Space::State& state) {
                              return told_pointer(state.node.find_memory(called, size));
                          });
    });
}

feroce_handle feroce_space_share(feroce_handle queue, int64_t timeout, feroce_handle space,
                                 const char* name, uint64_t size) {
    return begun(queue, [&]() -> feroce_handle {
        return call_alone(queue, timeout, space,
                          [called = text_of(name), size](Space::State& state) {
                              return told_pointer(state.node.share_memory(called, size));
                          });
    });
}

feroce_handle feroce_space_withdraw(feroce_handle queue, int64_t timeout, feroce_handle space,
                                    const char* name) {
    return begun(queue, [&]() -> feroce_handle {
        return call_alone(queue, timeout, space,
                          [called = text_of(name)](Space::State& state) -> Outcome {
                              return state.node.withdraw(called);
                          });
    });
}

feroce_handle feroce_space_barrier(feroce_handle queue, int64_t timeout, feroce_handle space) {
    return begun(queue, [&]() -> feroce_handle {
        return call_alone(queue, timeout, space,
                          [](Space::State& state) -> Outcome { return state.node.barrier(); });
    });
}
