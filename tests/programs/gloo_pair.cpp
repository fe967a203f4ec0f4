// gloo as a program uses it: two processes, gloo_pair FOLDER 0 and gloo_pair FOLDER 1, meet by
// files in FOLDER, and sum arrays by gloo's ring over its ibverbs transport. Both look at every
// element.
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace {

// gloo ends the process if an algorithm is destroyed while a send of it is in flight, and does not
// wait for one: it is kept.
template <typename Algorithm>
bool sum_is_right(const std::shared_ptr<gloo::Context>& context, int count) {
    static std::vector<std::vector<float>> arrays;
    static std::vector<std::unique_ptr<Algorithm>> algorithms;
    std::vector<float>& values = arrays.emplace_back(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i)
        values[static_cast<std::size_t>(i)] = static_cast<float>(i % 1000 + context->rank);
    const std::vector<float*> all{values.data()};
    algorithms.push_back(std::make_unique<Algorithm>(context, all, count));
    algorithms.back()->run();
    for (int i = 0; i < count; ++i)
        if (values[static_cast<std::size_t>(i)] != static_cast<float>(2 * (i % 1000) + 1))
            return false;
    return true;
}

// All that was sent has arrived, here and there: a pair's sends end in their order.
void finish(gloo::Context& context, gloo::rendezvous::FileStore& store) {
    const auto& pair = context.getPair(1 - context.rank);
    const int slot = static_cast<int>(context.nextSlot());
    char here = 0, there = 0;
    const auto outgoing = pair->createSendBuffer(slot, &here, 1);
    const auto incoming = pair->createRecvBuffer(slot, &there, 1);
    outgoing->send();
    outgoing->waitSend();
    incoming->waitRecv();
    store.set("finished" + std::to_string(context.rank), {1});
    store.wait({"finished" + std::to_string(1 - context.rank)});
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    const auto names = gloo::transport::ibverbs::getDeviceNames();
    if (names.empty()) return 3;
    auto device = gloo::transport::ibverbs::CreateDevice({names[0], 1, 0});
    const auto context = std::make_shared<gloo::rendezvous::Context>(std::atoi(argv[2]), 2);
    gloo::rendezvous::FileStore store(argv[1]);
    context->connectFullMesh(store, device);
    bool right = true;
    for (const int count : {1, 1000, 1000000})
        right = right && sum_is_right<gloo::AllreduceRing<float>>(context, count) &&
                sum_is_right<gloo::AllreduceRingChunked<float>>(context, count);
    finish(*context, store);
    if (right) std::puts("every sum is right");
    std::fflush(stdout);
    std::_Exit(right ? 0 : 1);
}
