// Who holds UDP port 4791: the kernel lists sockets with their inodes, and the descriptors of
// processes name the same inodes. A process is one of ours if it shows a state page.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <system_error>

#include "cli/doctor.hpp"

namespace feroce::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kPortHex[] = "12B7";  // 4791, as /proc/net/udp writes it.

// Sockets bound to the port: inode, and the user who made them.
std::map<std::string, std::string> bound_sockets() {
    std::map<std::string, std::string> out;
    for (const char* path : {"/proc/self/net/udp", "/proc/self/net/udp6"}) {
        std::ifstream file(path);
        std::string line;
        while (std::getline(file, line)) {
            std::istringstream words(line);
            std::string number, local, remote, state, queues, timer, retransmits, uid, timeout,
                inode;
            words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> uid >>
                timeout >> inode;
            const std::size_t colon = local.rfind(':');
            if (colon != std::string::npos && local.substr(colon + 1) == kPortHex)
                out.emplace(inode, uid);
        }
    }
    return out;
}

bool is_number(const std::string& word) {
    return !word.empty() &&
           std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// The processes that hold one of the sockets; those of others cannot be looked into.
std::map<std::string, std::set<std::string>> holders_of(
    const std::map<std::string, std::string>& sockets) {
    std::map<std::string, std::set<std::string>> out;  // By inode: pids.
    std::error_code error;
    for (const fs::directory_entry& process : fs::directory_iterator("/proc", error)) {
        const std::string pid = process.path().filename();
        if (!is_number(pid)) continue;
        std::error_code unreadable;
        for (const fs::directory_entry& fd :
             fs::directory_iterator(process.path() / "fd", unreadable)) {
            const std::string target = fs::read_symlink(fd.path(), unreadable).string();
            if (target.rfind("socket:[", 0) != 0) continue;
            const std::string inode = target.substr(8, target.size() - 9);
            if (sockets.count(inode) != 0) out[inode].insert(pid);
        }
    }
    return out;
}

bool is_ours(const std::string& pid) {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator("/dev/shm", error)) {
        const std::string name = entry.path().filename();
        std::error_code unreadable;
        if (name.rfind("feroce-", 0) == 0 && fs::exists(entry.path() / pid, unreadable))
            return true;
    }
    return false;
}

std::string command_of(const std::string& pid) {
    std::string name = "a process";
    std::ifstream file("/proc/" + pid + "/comm");
    std::getline(file, name);
    return name;
}

struct Holders {
    std::set<std::string> ours, foreign;  // Pids, of those that we can look into.
    std::set<std::string> users;          // Of all.
};

Holders holders_of_port(const std::map<std::string, std::string>& sockets) {
    Holders out;
    const auto holders = holders_of(sockets);
    for (const auto& [inode, uid] : sockets) {
        out.users.insert(uid);
        const auto found = holders.find(inode);
        if (found == holders.end()) continue;
        for (const std::string& pid : found->second)
            (is_ours(pid) ? out.ours : out.foreign).insert(pid);
    }
    return out;
}

// Programs get in, so those that hold it run Feroce, whatever else can be seen of them.
Finding describe_shared(const Holders& holders) {
    const std::string own = std::to_string(::geteuid());
    if (holders.users.count(own) == 0)
        return {Verdict::Good, "port",
                fmt::format("UDP port 4791 is held by processes of user {} on Feroce, whose guests "
                            "programs are",
                            *holders.users.begin()),
                ""};
    const std::size_t count = holders.ours.size() + holders.foreign.size();
    return {Verdict::Good, "port",
            fmt::format("UDP port 4791 is shared by {} process{} on Feroce", count,
                        count == 1 ? "" : "es"),
            ""};
}

}  // namespace

std::vector<Finding> check_udp_port(const Trial& trial) {
    const std::map<std::string, std::string> sockets = bound_sockets();
    if (sockets.empty()) return {{Verdict::Good, "port", "UDP port 4791 is free", ""}};
    const Holders holders = holders_of_port(sockets);
    if (!trial.tried || trial.opened) return {describe_shared(holders)};
    std::vector<Finding> out;
    for (const std::string& pid : holders.foreign)
        out.push_back({Verdict::Stop, "port",
                       fmt::format("UDP port 4791 is taken by {} (pid {}), which is not Feroce",
                                   command_of(pid), pid),
                       "kill " + pid});
    if (!out.empty()) return out;
    const bool unknown = holders.ours.empty() && trial.error == EADDRINUSE;
    if (unknown && holders.users.count("0") != 0)
        return {{Verdict::Stop, "port",
                 "UDP port 4791 is held by root or by the kernel itself, as its rxe does",
                 "modprobe -r rdma_rxe   # if it is rxe; else, as root: ss -ulp"}};
    if (unknown)
        return {{Verdict::Stop, "port",
                 fmt::format("UDP port 4791 is held by user {}, and not by Feroce",
                             *holders.users.begin()),
                 "ss -ulp   # as that user: which process has it"}};
    return {{Verdict::Note, "port",
             fmt::format("UDP port 4791 is held by processes of user {}", *holders.users.begin()),
             ""}};
}

}  // namespace feroce::cli
