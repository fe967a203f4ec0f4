// `./feroce bench guidelines`: what each rule for fast RDMA is worth on this device. Two nodes; the
// second posts raw work to the first's memory, following a rule and not following it.
//
//   guidelines MILLISECONDS       A line of JSON a figure.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "feroce/gas/node.hpp"

namespace rdma = feroce::rdma;
using namespace feroce::gas;
using feroce::Duration;
using feroce::Instant;

namespace {

constexpr std::size_t kList = 16;

struct Ended : rdma::Operation {
    Ended() {
        complete = [](rdma::Operation& self, const ibv_wc& completion) {
            auto& ended = static_cast<Ended&>(self);
            if (completion.status != IBV_WC_SUCCESS) std::abort();
            ++ended.count;
        };
    }
    std::uint64_t count = 0;
};

void print(const std::string& name, double value, const char* unit) {
    std::printf("{\"row\": \"%s\", \"value\": %f, \"unit\": \"%s\"}\n", name.c_str(), value, unit);
    std::fflush(stdout);
}

class Bench {
public:
    Bench(Node& node, Duration time)
        : node_(node),
          time_(time),
          lane_(node.lanes().lane(NodeId{0})),
          here_(lane_.connection->allocate(4096).value()),
          word_(node.find<nic<std::uint64_t>>("word").value()),
          there_{word_.address(), 8 * kList, lane_.rkey, 0} {}

    void run() {
        lists();
        outstanding();
        chains();
        threads();
        control_path();
    }

private:
    using Make = std::function<rdma::Work(std::size_t index)>;
    enum class Doorbells : std::uint8_t { One, Each };

    rdma::LocalRegion own(std::uint32_t bytes) const { return here_.local(0, bytes); }
    rdma::RemoteRegion far(std::uint64_t bytes) const { return there_.subregion(0, bytes); }

    // The median time of what is done again and again, in microseconds: what other programs do to
    // this machine meanwhile falls on few of them.
    template <class Body>
    double microseconds(Body body) {
        rdma::Loop& loop = node_.loop();
        std::vector<double> times;
        Instant start = loop.now();
        for (const Instant end = start + time_; start < end;) {
            body();
            const Instant now = loop.now();
            times.push_back(std::chrono::duration<double, std::micro>(now - start).count());
            start = now;
        }
        const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
        std::nth_element(times.begin(), middle, times.end());
        return *middle;
    }

    // Lists of kList work requests, one after another: thousands of requests a second.
    double rate(Ended& ended, Doorbells doorbells, std::uint64_t signals, const Make& make) {
        return 1000 * kList / microseconds([&] {
                   std::vector<rdma::Work> list;
                   for (std::size_t i = 0; i < kList; ++i) list.push_back(make(i));
                   const std::uint64_t wanted = ended.count + signals;
                   if (doorbells == Doorbells::One)
                       lane_.connection->post(list).value();
                   else
                       for (rdma::Work& work : list)
                           lane_.connection->post(std::span(&work, 1)).value();
                   while (ended.count < wanted) node_.loop().poll();
               });
    }

    void lists() {
        Ended ended;
        const auto write = [&](std::size_t i, bool inlined, bool all_signalled) {
            rdma::Work work = rdma::Work::write(far(8), own(8));
            if (inlined) work.inline_data();
            if (all_signalled || i + 1 == kList) work.signal(ended);
            return work;
        };
        const auto read = [&](std::size_t i, bool fenced) {
            rdma::Work work = rdma::Work::read(own(8), far(8));
            if (fenced) work.fence();
            if (i + 1 == kList) work.signal(ended);
            return work;
        };
        const auto show = [&](const char* name, Doorbells doorbells, std::uint64_t signals,
                              const Make& make) {
            print(name, rate(ended, doorbells, signals, make), "thousand/s");
        };
        show("16 writes, one doorbell", Doorbells::One, 1,
             [&](std::size_t i) { return write(i, true, false); });
        show("16 writes, a doorbell each", Doorbells::Each, 1,
             [&](std::size_t i) { return write(i, true, false); });
        show("16 writes, all signalled", Doorbells::One, kList,
             [&](std::size_t i) { return write(i, true, true); });
        show("16 writes, not inline", Doorbells::One, 1,
             [&](std::size_t i) { return write(i, false, false); });
        show("16 reads, no fences", Doorbells::One, 1,
             [&](std::size_t i) { return read(i, false); });
        show("16 reads, fenced", Doorbells::One, 1, [&](std::size_t i) { return read(i, true); });
    }

    // As many READs as that are posted, each by itself, before the first is waited for.
    void outstanding() {
        for (const std::size_t deep : {1, 2, 4, 8, 16, 32}) {
            Ended ended;
            const double each = microseconds([&] {
                const std::uint64_t wanted = ended.count + deep;
                for (std::size_t i = 0; i < deep; ++i) {
                    rdma::Work work = rdma::Work::read(own(8), far(8));
                    lane_.connection->post(work.signal(ended)).value();
                }
                while (ended.count < wanted) node_.loop().poll();
            });
            print("reads, " + std::to_string(deep) + " under way",
                  1000 * static_cast<double>(deep) / each, "thousand/s");
        }
    }

    void chains() {
        print("swap and read, one chain", microseconds([&] {
                  std::uint64_t found = 0, value = 0;
                  auto both = node_.lanes().chain(NodeId{0});
                  both.compare_exchange(word_, 0, 0, found).read(word_, value);
                  both.wait().value();
              }),
              "us");
        print("swap and read, one after the other", microseconds([&] {
                  node_.compare_exchange(word_, 0, 0).value();
                  node_.read(word_).value();
              }),
              "us");
    }

    // Two threads read, each by its own queue pair or both by one.
    void threads() {
        for (const bool shared : {false, true}) {
            std::mutex mutex;
            std::array<std::uint64_t, 2> counts{};
            const auto read = [&](std::size_t thread) {
                Lanes& lanes = node_.lanes(shared ? 0 : thread);
                const auto start = std::chrono::steady_clock::now();
                while (std::chrono::steady_clock::now() - start < time_) {
                    std::unique_lock lock(mutex, std::defer_lock);
                    if (shared) lock.lock();
                    lanes.read(word_).wait().value();
                    ++counts[thread];
                }
            };
            std::thread other([&] { read(1); });
            read(0);
            other.join();
            print(shared ? "2 threads, one queue pair" : "2 threads, a queue pair each",
                  static_cast<double>(counts[0] + counts[1]) /
                      std::chrono::duration<double>(time_).count() / 1000,
                  "thousand/s");
        }
    }

    void control_path() {
        std::vector<std::byte> memory(64 << 20);
        ibv_pd* domain = lane_.connection->domain();
        for (const auto& [name, bytes] : {std::pair("register and forget 4 KiB", 4 << 10),
                                          std::pair("register and forget 64 MiB", 64 << 20)})
            print(name, microseconds([&, size = static_cast<std::size_t>(bytes)] {
                      const auto region = rdma::MemoryRegion::create(
                          domain, std::span(memory).first(size), rdma::Access::Remote);
                      region.value();
                  }),
                  "us");
        ibv_qp_init_attr attributes{};
        attributes.send_cq = attributes.recv_cq = lane_.connection->queue_pair()->send_cq;
        attributes.cap = {128, 1, 1, 1, 64};
        attributes.qp_type = IBV_QPT_RC;
        print("make and end a queue pair", microseconds([&] {
                  ibv_qp* pair = ibv_create_qp(domain, &attributes);
                  if (pair == nullptr || ibv_destroy_qp(pair) != 0) std::abort();
              }),
              "us");
    }

    Node& node_;
    const Duration time_;
    Lanes::Lane& lane_;
    rdma::Buffer here_;
    ptr<nic<std::uint64_t>> word_;
    rdma::RemoteRegion there_;
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: guidelines MILLISECONDS\n");
        return 2;
    }
    NodeOptions options;
    options.placement = placement_from_environment().value();
    options.threads = 2;
    Node node = Node::join(options).value();
    if (node.id() == NodeId{0}) {
        const auto words = node.loop().run(node.allocator().allocate(node.id(), 8 * kList, 8));
        node.publish("word", words.value().as<nic<std::uint64_t>>()).value();
    }
    if (node.id() == NodeId{1}) Bench(node, std::chrono::milliseconds(std::atoi(argv[1]))).run();
    node.barrier().value();
    node.leave().value();
}
