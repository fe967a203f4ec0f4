// An attacker who is not on the path: raw sockets in a third network namespace, on the same bridge
// as two hosts that move verified bytes. He knows both addresses and forges them, he knows the
// protocol, and in half of his packets he even knows the queue pair's number; he guesses PSN, rkey,
// address and source port. FEROCE_TEST_PACKETS sets how many packets he sends.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/ip.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "attacks.hpp"
#include "base/random.hpp"
#include "ring.hpp"
#include "wire/packet.hpp"

namespace feroce::share {
namespace {

using std::chrono::seconds;
using wire::Opcode;

constexpr std::uint32_t kHostA = 0x0a00'0001, kHostB = 0x0a00'0002;
// Long after what the hosts write themselves; registered for remote access like all of it.
constexpr std::size_t kUntouched = 1 << 14;

struct Report {
    std::atomic<bool> ready{false}, connected{false}, stop{false}, done{false};
    std::uint32_t qpn = 0, rkey = 0;
    std::uint64_t address = 0;
    std::atomic<std::uint32_t> rounds{0}, strange_completions{0}, changed_bytes{0};
    std::atomic<int> status{0};
};

struct Table {
    std::array<Report, 2> hosts;
};

bool run(const std::string& command) {
    return std::system(command.c_str()) == 0;
}

// Names of namespaces live on the whole machine: with our pid they are nobody else's.
std::string space(const char* role) {
    return "feroce-" + std::to_string(::getpid()) + "-" + role;
}

void enter(const std::string& name) {
    const int fd = ::open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || ::setns(fd, CLONE_NEWNET) != 0) ::_exit(kCannotRun);
    ::close(fd);
}

// One host: writes to the other's memory and reads it back, and looks after its own.
class Host {
public:
    Host(Table& table, std::size_t index)
        : own_(table.hosts[index]), peer_(table.hosts[1 - index]) {}

    int run() {
        ibv_context* context = open();
        if (context == nullptr) return 2;
        end_ = std::make_unique<Endpoint>(context);
        for (std::size_t i = kUntouched; i < 2 * kUntouched; ++i) end_->memory[i] = 0x33;
        own_.qpn = end_->qp->qp_num;
        own_.rkey = end_->mr->rkey;
        own_.address = end_->address(0);
        own_.ready = true;
        if (!await(seconds(30), [&] { return peer_.ready.load(); }) || !connect()) return 4;
        own_.connected = true;
        if (!await(seconds(30), [&] { return peer_.connected.load(); })) return 5;
        while (!own_.stop && own_.status == 0) round();
        // The other may be in the middle of a round with us.
        await(seconds(100), [&] { return own_.stop.load(); });
        own_.done = true;
        await(seconds(30), [&] { return peer_.done.load(); });
        for (std::size_t i = kUntouched; i < 2 * kUntouched; ++i)
            if (end_->memory[i] != 0x33) ++own_.changed_bytes;
        return 0;
    }

private:
    static ibv_context* open() {
        int count = 0;
        ibv_device** list = ibv_get_device_list(&count);
        ibv_context* context = count > 0 ? ibv_open_device(list[0]) : nullptr;
        ibv_free_device_list(list);
        return context;
    }

    // For the attacker's messages: nobody else sends any.
    bool post_receives() {
        for (std::uint64_t i = 0; i < 8; ++i)
            if (end_->post_receive(3 * kUntouched, 64, i) != 0) return false;
        return true;
    }

    bool connect() {
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_RTR;
        a.path_mtu = IBV_MTU_1024;
        a.dest_qp_num = peer_.qpn;
        a.max_dest_rd_atomic = 4;
        a.min_rnr_timer = 1;
        a.ah_attr.is_global = 1;
        a.ah_attr.port_num = 1;
        a.ah_attr.grh.hop_limit = 64;
        // Numbers that a program draws at random, as it should.
        a.rq_psn = peer_.qpn * 7919 & 0xff'ffff;
        const Gid gid = Gid::from_v4(&own_ < &peer_ ? kHostB : kHostA);
        std::memcpy(a.ah_attr.grh.dgid.raw, gid.raw.data(), 16);
        if (end_->to_init() != 0 || !post_receives() ||
            ibv_modify_qp(end_->qp, &a,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                              IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) !=
                0)
            return false;
        ibv_qp_attr b{};
        b.qp_state = IBV_QPS_RTS;
        b.sq_psn = own_.qpn * 7919 & 0xff'ffff;
        b.timeout = 15;
        b.retry_cnt = 7;
        b.rnr_retry = 7;
        b.max_rd_atomic = 4;
        return ibv_modify_qp(end_->qp, &b,
                             IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0;
    }

    // The one completion that was asked for; any other is the attacker's doing.
    bool completes(std::uint64_t wr_id) {
        ibv_wc wc{};
        wc.status = IBV_WC_GENERAL_ERR;
        await(seconds(60), [&] { return ibv_poll_cq(end_->cq, 1, &wc) == 1; });
        if (wc.status != IBV_WC_SUCCESS) own_.status = wc.status;
        if (wc.wr_id != wr_id) ++own_.strange_completions;
        return wc.status == IBV_WC_SUCCESS;
    }

    void round() {
        const std::uint32_t size = 4096;
        for (std::uint32_t i = 0; i < size; ++i)
            end_->memory[2 * kUntouched + i] = static_cast<char>(i * 31 + own_.rounds);
        end_->post(IBV_WR_RDMA_WRITE, end_->sge(2 * kUntouched, size), peer_.address, peer_.rkey);
        if (!completes(42)) return;
        end_->post(IBV_WR_RDMA_READ, end_->sge(2 * kUntouched + size, size), peer_.address,
                   peer_.rkey);
        if (!completes(42)) return;
        const char* sent = end_->memory.data() + 2 * kUntouched;
        if (std::memcmp(sent, sent + size, size) != 0) ++own_.changed_bytes;
        ++own_.rounds;
    }

    Report& own_;
    Report& peer_;
    std::unique_ptr<Endpoint> end_;
};

// Builds one packet after the other, each sealed as its forged sender would.
class Attacker {
public:
    explicit Attacker(const Table& table)
        : table_(table), fd_(::socket(AF_INET, SOCK_RAW, IPPROTO_RAW)) {}

    bool fire(int packets) {
        int sent = 0;
        for (int i = 0; i < packets; ++i)
            if (send(i)) ++sent;
        return sent >= packets - packets / 100;
    }

private:
    static constexpr std::array kOpcodes{
        Opcode::RcWriteOnly,          Opcode::RcWriteFirst, Opcode::RcSendOnly,
        Opcode::RcSendOnlyImmediate,  Opcode::RcFetchAdd,   Opcode::RcCompareSwap,
        Opcode::RcReadRequest,        Opcode::RcAck,        Opcode::RcReadResponseOnly,
        Opcode::RcAtomicAck,          Opcode::UcWriteOnly,  Opcode::UdSendOnly,
        Opcode::RcSendOnlyInvalidate, Opcode::Cnp};

    bool send(int number) {
        const std::size_t victim = random_.next() % 2;
        const Report& report = table_.hosts[victim];
        wire::Bth bth;
        bth.opcode = kOpcodes[random_.next() % kOpcodes.size()];
        bth.ack_request = true;
        bth.psn = Psn(static_cast<std::uint32_t>(random_.next()));
        const bool knows_qpn = number % 2 == 0;
        bth.destination =
            Qpn{knows_qpn ? report.qpn
                          : qpn_of(1, static_cast<std::uint32_t>(random_.next() & 0x7fff)).raw};
        wire::Extensions extensions;
        const RKey rkey{static_cast<std::uint32_t>(random_.next())};
        extensions.reth = {report.address + kUntouched, rkey, 64};
        extensions.atomic = {report.address + kUntouched, rkey, 1, 0};
        extensions.deth = {Qkey{static_cast<std::uint32_t>(random_.next())}, Qpn{1}};
        const std::size_t payload =
            bth.opcode == Opcode::RcWriteFirst ? 1024 : payload_of(bth.opcode);
        std::vector<std::byte> packet(sizeof(iphdr) + 8 + wire::packet_size(bth.opcode, payload));
        const ByteSpan roce = ByteSpan(packet).subspan(sizeof(iphdr) + 8);
        wire::emit_headers(roce, bth, extensions);
        const std::uint32_t from = victim == 0 ? kHostB : kHostA;
        const std::uint32_t to = victim == 0 ? kHostA : kHostB;
        const auto source_port = static_cast<std::uint16_t>(0xc000 | random_.next());
        wire::seal({Gid::from_v4(from), Gid::from_v4(to), source_port}, 0, roce);
        write_ip(packet, from, to, source_port);
        const port::SocketAddress address = port::socket_address(Gid::from_v4(to), 0, 0);
        return ::sendto(fd_.get(), packet.data(), packet.size(), 0, &address.any, address.length) >=
               0;
    }

    static std::size_t payload_of(Opcode opcode) {
        switch (opcode) {
            case Opcode::RcWriteOnly:
            case Opcode::UcWriteOnly:
            case Opcode::RcSendOnly:
            case Opcode::RcSendOnlyImmediate:
            case Opcode::RcSendOnlyInvalidate:
            case Opcode::UdSendOnly:
            case Opcode::RcReadResponseOnly:
                return 64;
            case Opcode::Cnp:
                return 16;
            default:
                return 0;
        }
    }

    // UDP checksum 0, as rxe sends it; the kernel fills in the one of IP.
    static void write_ip(std::vector<std::byte>& packet, std::uint32_t from, std::uint32_t to,
                         std::uint16_t source_port) {
        iphdr ip{};
        ip.version = 4;
        ip.ihl = 5;
        ip.tot_len = htons(static_cast<std::uint16_t>(packet.size()));
        ip.frag_off = htons(0x4000);
        ip.ttl = 64;
        ip.protocol = IPPROTO_UDP;
        ip.saddr = htonl(from);
        ip.daddr = htonl(to);
        std::memcpy(packet.data(), &ip, sizeof ip);
        const std::array<std::uint16_t, 4> udp{
            htons(source_port), htons(kPort),
            htons(static_cast<std::uint16_t>(packet.size() - sizeof ip)), 0};
        std::memcpy(packet.data() + sizeof ip, udp.data(), sizeof udp);
    }

    const Table& table_;
    port::Fd fd_;
    Prng random_{20260801};
};

int wrong_ports(pid_t pid) {
    const std::string text =
        output_of(FEROCE_PROGRAM " -j stat pid " + std::to_string(pid) + " 2>&1");
    const std::string name = "\"drop_wrong_source_port\":";
    const std::size_t at = text.find(name);
    return at == std::string::npos ? -1 : std::atoi(text.c_str() + at + name.size());
}

class Injector : public testing::Test {
protected:
    void SetUp() override {
        ::setenv("FEROCE_DEVICES", "eth0", 1);
        if (!run("ip netns add " + space("hub") + " 2>/dev/null")) {
            std::fprintf(stderr, "no network namespace can be made: run as root\n");
            std::exit(kCannotRun);
        }
        ASSERT_TRUE(run("ip -n " + space("hub") + " link add br0 type bridge"));
        ASSERT_TRUE(run("ip -n " + space("hub") + " link set br0 up"));
        const std::array<const char*, 3> roles{"a", "b", "x"};
        for (std::size_t i = 0; i < roles.size(); ++i) {
            const std::string name = space(roles[i]), in = "ip -n " + name + " ";
            ASSERT_TRUE(run("ip netns add " + name));
            ASSERT_TRUE(run("ip -n " + space("hub") + " link add p" + roles[i] +
                            " type veth peer name eth0 netns " + name));
            ASSERT_TRUE(run("ip -n " + space("hub") + " link set p" + roles[i] + " master br0 up"));
            ASSERT_TRUE(run(in + "address add 10.0.0." + std::to_string(i + 1) + "/24 dev eth0"));
            ASSERT_TRUE(run(in + "link set eth0 up"));
            ASSERT_TRUE(run(in + "link set lo up"));
        }
    }
    void TearDown() override {
        for (const pid_t pid : pids) ::kill(pid, SIGKILL);
        for (const pid_t pid : pids) ::waitpid(pid, nullptr, 0);
        for (const char* role : {"a", "b", "x", "hub"})
            run("ip netns delete " + space(role) + " 2>/dev/null");
    }
    // Must be a child: names carry our pid, and the namespace is the child's alone.
    pid_t start(const char* role, const std::function<int()>& body) {
        const std::string name = space(role);
        const pid_t child = ::fork();
        if (child == 0) {
            enter(name);
            ::_exit(body());
        }
        pids.push_back(child);
        return child;
    }
    static Table& shared_table() {
        void* memory = ::mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        return *new (memory) Table;
    }

    Table& table = shared_table();
    std::vector<pid_t> pids;
};

TEST_F(Injector, ForgedPacketsChangeNothing) {
    const char* wanted = std::getenv("FEROCE_TEST_PACKETS");
    const int packets = wanted == nullptr ? 200'000 : std::atoi(wanted);
    const pid_t a = start("a", [this] { return Host(table, 0).run(); });
    const pid_t b = start("b", [this] { return Host(table, 1).run(); });
    const auto advance = [&](std::uint32_t rounds) {
        for (Report& host : table.hosts) {
            const std::uint32_t mark = host.rounds;
            await(seconds(60), [&] { return host.rounds >= mark + rounds || host.status != 0; });
            if (host.rounds < mark + rounds) return false;
        }
        return true;
    };
    ASSERT_TRUE(advance(20));
    const pid_t x = start("x", [&] { return Attacker(table).fire(packets) ? 0 : 1; });
    EXPECT_EQ(exit_status(x), 0);
    EXPECT_TRUE(advance(20)) << output_of(FEROCE_PROGRAM " explain");
    // They did arrive: of those that name a queue pair, few guess its peer's port.
    EXPECT_GT(wrong_ports(a) + wrong_ports(b), packets / 10);
    for (Report& host : table.hosts) host.stop = true;
    EXPECT_EQ(exit_status(a), 0);
    EXPECT_EQ(exit_status(b), 0);
    for (const Report& host : table.hosts) {
        EXPECT_EQ(host.status, 0);
        EXPECT_EQ(host.changed_bytes, 0u);
        EXPECT_EQ(host.strange_completions, 0u);
    }
    pids.clear();
}

}  // namespace
}  // namespace feroce::share
