// Two processes with buffers on a GPU, and verbs between them: random cases of WRITE, READ, SEND
// and WRITE with immediate, of all sizes, from and to lists that mix host and device memory. Every
// byte is compared, and those around them. Or rates of 1 MiB WRITEs, or of bare copies. With a real
// driver library, or tests' own.
//
// transfers [--driver LIBRARY] [--cases N] [--most BYTES] [--seed N] [--spin] [--seconds N]
//           [--dmabuf]
// transfers [--driver LIBRARY] --rate host|gpu|both|copies
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bare_copies.hpp"
#include "fake_cuda.hpp"
#include "gpu_calls.hpp"
#include "transfers_peer.hpp"

namespace gpu {
namespace {

struct Options {
    std::string driver = "libcuda.so.1";
    unsigned cases = 1000;
    std::uint64_t most = std::uint64_t{1} << 30;
    unsigned seed = 1;
    unsigned seconds = 0;  // No case is begun after so many; 0: all are.
    bool spin = false;
    bool dmabuf = false;  // Device memory is registered by a descriptor of it.
    std::string rate;
};

Options parse(int count, char** words) {
    Options out;
    for (int i = 1; i < count; ++i) {
        const std::string word = words[i];
        const auto value = [&]() -> std::string { return ++i < count ? words[i] : ""; };
        if (word == "--driver")
            out.driver = value();
        else if (word == "--cases")
            out.cases = static_cast<unsigned>(std::stoul(value()));
        else if (word == "--most")
            out.most = std::stoull(value());
        else if (word == "--seed")
            out.seed = static_cast<unsigned>(std::stoul(value()));
        else if (word == "--rate")
            out.rate = value();
        else if (word == "--seconds")
            out.seconds = static_cast<unsigned>(std::stoul(value()));
        else if (word == "--spin")
            out.spin = true;
        else if (word == "--dmabuf")
            out.dmabuf = true;
        else
            fail("unknown word", word.c_str());
    }
    return out;
}

enum class What { Write, WriteImmediate, Read, Send };
constexpr const char* kNames[] = {"WRITE", "WRITE with immediate", "READ", "SEND"};

// Both processes draw the same cases.
struct Case {
    What what = What::Write;
    std::uint64_t size = 0;
    std::uint64_t here = 0, there = 0;  // Offsets of the first byte.
    unsigned seed = 0;
    std::vector<Piece> client, server;  // Lists; the target of a WRITE or READ has one piece.
};

std::vector<Piece> draw_list(std::mt19937_64& chance, std::uint64_t at, std::uint64_t size,
                             bool one) {
    const std::uint64_t parts = one || size < 3 ? 1 : 1 + chance() % 3;
    std::vector<Piece> out;
    std::uint64_t done = 0;
    for (std::uint64_t i = 0; i < parts; ++i) {
        const std::uint64_t length =
            i + 1 == parts ? size - done : 1 + chance() % (size - done - (parts - i - 1));
        // Mostly the GPU; lists have host memory in between.
        out.push_back({parts == 1 ? chance() % 8 != 0 : chance() % 2 == 0, at + done, length});
        done += length;
    }
    return out;
}

Case draw(std::mt19937_64& chance, std::uint64_t most) {
    Case out;
    out.what = static_cast<What>(chance() % 4);
    const double exponent = std::uniform_real_distribution<>(0, std::log2(double(most)))(chance);
    out.size = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(std::exp2(exponent)), 1, most);
    out.here = kMargin + chance() % 5000;
    out.there = kMargin + chance() % 5000;
    out.seed = static_cast<unsigned>(chance());
    out.client = draw_list(chance, out.here, out.size, false);
    out.server = draw_list(chance, out.there, out.size, out.what != What::Send);
    return out;
}

void run_client(Peer& peer, const Case& c) {
    const bool reads = c.what == What::Read;
    reads ? peer.erase(c.client) : peer.fill(c.client, c.seed);
    peer.meet();
    peer.meet();  // The receive is posted.
    constexpr ibv_wr_opcode kCodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
                                        IBV_WR_RDMA_READ, IBV_WR_SEND};
    peer.post(kCodes[static_cast<int>(c.what)], c.client, c.server.front());
    peer.expect_completion(kNames[static_cast<int>(c.what)]);
    peer.meet();
    if (reads) peer.verify(c.client, c.seed);
    peer.meet();
}

void run_server(Peer& peer, const Case& c) {
    const bool reads = c.what == What::Read;
    reads ? peer.fill(c.server, c.seed) : peer.erase(c.server);
    peer.meet();
    if (c.what == What::Send) peer.post_receive(c.server);
    if (c.what == What::WriteImmediate) peer.post_receive({});
    peer.meet();
    if (c.what == What::Send || c.what == What::WriteImmediate) {
        // Data must be there as soon as the completion is, before the client knows.
        peer.expect_completion("receive");
        peer.verify(c.server, c.seed);
    }
    peer.meet();
    if (!reads) peer.verify(c.server, c.seed);
    peer.meet();
}

void run_cases(Peer& peer, const Options& options, bool client) {
    const auto start = std::chrono::steady_clock::now();
    const auto is_late = [&] {
        return options.seconds > 0 &&
               std::chrono::steady_clock::now() - start > std::chrono::seconds(options.seconds);
    };
    std::mt19937_64 chance(options.seed);
    std::uint64_t bytes = 0;
    unsigned done = 0;
    for (; done < options.cases; ++done) {
        const Case c = draw(chance, options.most);
        peer.note(done, kNames[static_cast<int>(c.what)], c.size);
        if (!peer.agree(client && !is_late(), client)) break;
        client ? run_client(peer, c) : run_server(peer, c);
        bytes += c.size;
    }
    if (client)
        std::printf("%u of %u cases, %.3f GB, every byte as it should be\n", done, options.cases,
                    static_cast<double>(bytes) / 1e9);
}

// From which memory to which.
struct Way {
    const char* name;
    bool from_gpu, to_gpu;
};
constexpr Way kHost{"host to host", false, false};
constexpr Way kGpu{"gpu to gpu", true, true};
constexpr Way kToGpu{"host to gpu", false, true};
constexpr Way kFromGpu{"gpu to host", true, false};

// 1 MiB WRITEs, eight at a time, to the same bytes again and again. In GB/s; the client's alone.
double measure(Peer& peer, const Way& way, bool client) {
    constexpr std::uint64_t kBytes = 1 << 20;
    constexpr unsigned kWindow = 8;
    constexpr auto kTime = std::chrono::milliseconds(400);
    peer.meet();
    double rate = 0;
    if (client) {
        const Piece from{way.from_gpu, kMargin, kBytes};
        const Piece to{way.to_gpu, kMargin, kBytes};
        const auto start = std::chrono::steady_clock::now();
        unsigned posted = 0, done = 0;
        while (std::chrono::steady_clock::now() - start < kTime || done < posted) {
            while (posted - done < kWindow && std::chrono::steady_clock::now() - start < kTime) {
                peer.post(IBV_WR_RDMA_WRITE, {from}, to);
                ++posted;
            }
            if (done < posted) {
                peer.expect_completion("WRITE");
                ++done;
            }
        }
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
        rate = static_cast<double>(done) * kBytes / took.count() / 1e9;
        std::printf("1 MiB WRITE, %s: %.2f GB/s\n", way.name, rate);
    }
    peer.meet();
    return rate;
}

double middle(std::vector<double> of) {
    std::sort(of.begin(), of.end());
    return of[of.size() / 2];
}

// One process copies from the GPU and the other to it, as a WRITE has them do: each alone, then
// both.
void run_bare_copies(Peer& peer, const Gpu& gpu, bool client) {
    constexpr std::chrono::milliseconds kTime(300);
    BareCopies copies(gpu);
    const auto measure = [&](const char* beside) {
        std::printf("copies of 256 KiB %s the GPU, %s: %.1f GB/s\n", client ? "from" : "to", beside,
                    copies.rate(!client, kTime));
        std::fflush(stdout);
    };
    peer.meet();
    if (client) measure("alone");
    peer.meet();
    if (!client) measure("alone");
    peer.meet();
    measure("both processes at a time");
    peer.meet();
}

// In turns, so that what else the machine does meets all of them.
void run_rates(Peer& peer, const std::string& which, bool client) {
    constexpr int kRounds = 5;
    if (which != "both") {
        for (int i = 0; i < 3; ++i) (void)measure(peer, which == "gpu" ? kGpu : kHost, client);
        return;
    }
    constexpr std::array ways{kGpu, kToGpu, kFromGpu};
    std::array<std::vector<double>, ways.size()> ratios;
    for (int i = 0; i < kRounds; ++i) {
        const double host = measure(peer, kHost, client);
        for (std::size_t w = 0; w < ways.size(); ++w)
            ratios[w].push_back(measure(peer, ways[w], client) / host);
    }
    if (!client) return;
    std::printf("1 MiB WRITE against host to host, %d rounds:", kRounds);
    for (std::size_t w = 0; w < ways.size(); ++w)
        std::printf("%s %s %.2f (%.2f to %.2f)", w == 0 ? "" : ",", ways[w].name, middle(ratios[w]),
                    *std::min_element(ratios[w].begin(), ratios[w].end()),
                    *std::max_element(ratios[w].begin(), ratios[w].end()));
    std::printf("\n");
}

// The fake has a switch instead of kernels.
void run_beside_kernel(Peer& peer, const Gpu& gpu, const Options& options, bool client) {
    if (gpu.is_fake()) {
        const auto entrance = gpu.call<const fake_cuda::Controls*()>("fake_cuda_controls");
        entrance()->spin(true);
        run_cases(peer, options, client);
        entrance()->spin(false);
        return;
    }
    const SpinningKernel kernel(gpu);
    run_cases(peer, options, client);
    if (!kernel.spins()) fail("the kernel ended before the transfers did", "");
}

int run(const Options& options, int socket, bool client) {
    const Gpu gpu(options.driver.c_str());
    const std::uint64_t most = options.rate.empty() ? options.most : 1 << 20;
    Peer peer(gpu, most + 2 * kMargin + 8192, socket, options.dmabuf);
    if (options.rate.empty() && options.spin)
        run_beside_kernel(peer, gpu, options, client);
    else if (options.rate.empty())
        run_cases(peer, options, client);
    else if (options.rate == "copies")
        run_bare_copies(peer, gpu, client);
    else
        run_rates(peer, options.rate, client);
    if (gpu.is_fake()) {
        const auto* controls = gpu.call<const fake_cuda::Controls*()>("fake_cuda_controls")();
        if (controls->violations() != 0) fail("the driver was misused", controls->last_violation());
    }
    return 0;
}

}  // namespace
}  // namespace gpu

int main(int count, char** words) {
    const gpu::Options options = gpu::parse(count, words);
    int sockets[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) return 2;
    const pid_t server = ::fork();
    if (server == 0) {
        ::close(sockets[0]);
        ::_exit(gpu::run(options, sockets[1], false));
    }
    ::close(sockets[1]);
    const int mine = gpu::run(options, sockets[0], true);
    int theirs = 1;
    ::waitpid(server, &theirs, 0);
    return mine != 0 || theirs != 0 ? 1 : 0;
}
