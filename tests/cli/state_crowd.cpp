// Many processes with many queue pairs, for those that look at them: state_crowd PROCESSES QPS.
// Each keeps a state page by the code of a real one, and answers; there is no device behind it.
// Says "ready", and ends when its input does.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "process/state_page.hpp"

namespace feroce::process {
namespace {

StateSnapshot describe(std::uint32_t number, std::uint32_t qps, std::uint64_t round) {
    StateSnapshot out;
    out.pid = static_cast<std::uint32_t>(::getpid());
    out.command = "crowd";
    out.devices = {"feroce_lo"};
    out.counters = {{"sent_bytes", round * 1'000'000}, {"sent_pkts", round * 1'000}};
    for (std::uint32_t i = 0; i < qps; ++i) {
        StateQp& qp = out.qps.emplace_back();
        qp.qpn = (number << 16) + i;
        qp.type = 2;
        qp.state = 3;
        qp.packets_sent = round * (i + 1);
        qp.window_bytes = 65'536;
        qp.rtt_ns = 20'000;
        qp.destination = Gid::from_v4(0x7f00'0001);
    }
    return out;
}

[[noreturn]] void be_member(std::uint32_t number, std::uint32_t qps, int ready) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::close(STDIN_FILENO);
    ::close(STDOUT_FILENO);
    const auto page = StatePage::create(static_cast<std::uint32_t>(::geteuid()));
    if (!page) ::_exit(1);
    for (std::uint64_t round = 1;; ++round) {
        const std::uint32_t seen = (*page)->request();
        if (!(*page)->write(encode(describe(number, qps, round)))) ::_exit(2);
        if (round == 1) {
            if (::write(ready, "+", 1) != 1) ::_exit(3);
            ::close(ready);  // So that the reader sees the end if a member dies before its turn.
        }
        (*page)->wait_for_request(seen);
    }
}

bool all_ready(int from, std::uint32_t processes) {
    char byte;
    while (processes > 0 && ::read(from, &byte, 1) == 1) --processes;
    return processes == 0;
}

}  // namespace
}  // namespace feroce::process

int main(int argc, char** argv) {
    using namespace feroce::process;
    if (argc != 3) return 2;
    const auto processes = static_cast<std::uint32_t>(std::atoi(argv[1]));
    const auto qps = static_cast<std::uint32_t>(std::atoi(argv[2]));
    int ready[2];
    if (::pipe(ready) != 0) return 1;
    std::vector<pid_t> members;
    for (std::uint32_t i = 0; i < processes; ++i) {
        const pid_t child = ::fork();
        if (child == 0) {
            ::close(ready[0]);
            be_member(i + 1, qps, ready[1]);
        }
        if (child < 0) break;
        members.push_back(child);
    }
    ::close(ready[1]);
    const bool good = members.size() == processes && all_ready(ready[0], processes);
    std::puts(good ? "ready" : "failed");
    std::fflush(stdout);
    char byte;
    while (good && ::read(STDIN_FILENO, &byte, 1) > 0) continue;
    for (const pid_t member : members) ::kill(member, SIGKILL);
    for (const pid_t member : members) ::waitpid(member, nullptr, 0);
    return good ? 0 : 1;
}
