#include "cli/doctor.hpp"

#include <fmt/format.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "cli/devices.hpp"
#include "cli/elf_check.hpp"
#include "cli/pci_place.hpp"
#include "cli/run.hpp"
#include "process/state_page.hpp"

namespace feroce::cli {
namespace {

namespace fs = std::filesystem;
using Findings = std::vector<Finding>;

// What a path MTU takes besides its payload: IPv6, UDP and the longest headers, rounded as rxe
// does.
constexpr unsigned kHeaderBytes = 80;
constexpr unsigned kSmallestMtu = 256;
constexpr unsigned kLargestMtu = 4096;
// What a receive socket asks for: the largest window and its bookkeeping.
constexpr int kReceiveBufferBytes = 4 * 1024 * 1024;
// Sharing the port takes some 50, and 32 more for a moment; a program has descriptors of its own.
constexpr rlim_t kDescriptorsMin = 128;

Findings check_library() {
    const std::string folder = library_folder();
    if (folder.empty())
        return {{Verdict::Stop, "library", "libibverbs.so.1 of Feroce is not where it belongs",
                 "./feroce build, or install the package again"}};
    return {{Verdict::Good, "library", "programs get libibverbs.so.1 from " + folder, ""}};
}

// Only `feroce run` and `feroce env` read it: a program that opens a device does not tell.
Findings check_pci() {
    const char* const setting = std::getenv("FEROCE_PCI");
    if (setting == nullptr) return {};
    const Result<PciPlaces> places = PciPlaces::parse(setting);
    if (places) return {};
    return {{Verdict::Stop, "pci", places.error().why, "unset FEROCE_PCI"}};
}

unsigned mtu_of(const std::string& interface) {
    ifreq request{};
    std::strncpy(request.ifr_name, interface.c_str(), IFNAMSIZ - 1);
    const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool known = fd >= 0 && ::ioctl(fd, SIOCGIFMTU, &request) == 0;
    if (fd >= 0) ::close(fd);
    return known ? static_cast<unsigned>(request.ifr_mtu) : 0;
}

unsigned path_mtu(unsigned interface_mtu) {
    unsigned out = kLargestMtu;
    while (out >= kSmallestMtu && out + kHeaderBytes > interface_mtu) out /= 2;
    return out;
}

Finding check_device(const DeviceInfo& device) {
    const unsigned mtu = mtu_of(device.interface);
    const unsigned path = path_mtu(mtu);
    const std::string at = device.gids.empty() ? "no address" : to_string(device.gids.front());
    if (path < kSmallestMtu)
        return {Verdict::Stop, "mtu",
                fmt::format("{} has an MTU of {}, too small for any RDMA packet", device.interface,
                            mtu),
                fmt::format("ip link set dev {} mtu 1500", device.interface)};
    if (path < kLargestMtu)
        return {
            Verdict::Slow, "mtu",
            fmt::format("{} ({}, {}) has an MTU of {}: packets carry {} bytes, 4096 need {}",
                        device.name, device.interface, at, mtu, path, kLargestMtu + kHeaderBytes),
            fmt::format("ip link set dev {} mtu {}   # if the network can", device.interface,
                        kLargestMtu + kHeaderBytes)};
    return {Verdict::Good, "device",
            fmt::format("{} ({}, {}) carries {} bytes a packet", device.name, device.interface, at,
                        path),
            ""};
}

Findings check_devices() {
    const std::vector<DeviceInfo> devices = list_devices();
    const char* restricted = std::getenv("FEROCE_DEVICES");
    if (devices.empty() && restricted != nullptr && *restricted != '\0')
        return {{Verdict::Stop, "devices",
                 fmt::format("none of the interfaces in FEROCE_DEVICES={} is up with an address",
                             restricted),
                 "unset FEROCE_DEVICES"}};
    if (devices.empty())
        return {{Verdict::Stop, "devices",
                 "no network interface is up and has an address, so there is no RDMA device",
                 "ip link set lo up"}};
    Findings out;
    for (const DeviceInfo& device : devices) out.push_back(check_device(device));
    if (hides_loopback(devices))
        out.push_back(
            {Verdict::Note, "devices",
             "feroce_lo is listed only to programs that name it, by an argument or in the "
             "environment; rdma_cm to a loopback address uses the first device",
             "FEROCE_DEVICES=lo"});
    const bool only_loopback = devices.size() == 1 && devices.front().interface == "lo";
    if (only_loopback)
        out.push_back({Verdict::Note, "devices",
                       "only loopback has an address: other machines cannot be reached",
                       "ip addr add ADDRESS/PREFIX dev INTERFACE"});
    return out;
}

// Asked of the kernel and not read from /proc, which does not show it in every namespace.
Findings check_buffers() {
    const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int granted = 0;
    socklen_t size = sizeof granted;
    ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kReceiveBufferBytes, sizeof kReceiveBufferBytes);
    const bool known = ::getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &granted, &size) == 0;
    if (fd >= 0) ::close(fd);
    granted /= 2;  // The kernel doubles what it grants, for its own bookkeeping.
    if (!known)
        return {{Verdict::Stop, "sockets", "no UDP socket can be made here",
                 "check seccomp and the limits of the container"}};
    if (granted < kReceiveBufferBytes)
        return {{Verdict::Slow, "buffers",
                 fmt::format("a receive buffer may have {} bytes (net.core.rmem_max): bursts of "
                             "several senders are lost and sent again",
                             granted),
                 fmt::format("sysctl -w net.core.rmem_max={}", kReceiveBufferBytes)}};
    return {{Verdict::Good, "buffers", "receive buffers may have 4 MiB", ""}};
}

std::string amount(rlim_t value) {
    return value == RLIM_INFINITY ? "unlimited" : fmt::format("{} KiB", value / 1024);
}

Findings check_limits(bool has_kernel_device) {
    Findings out;
    rlimit files{}, locked{};
    ::getrlimit(RLIMIT_NOFILE, &files);
    ::getrlimit(RLIMIT_MEMLOCK, &locked);
    if (files.rlim_cur < kDescriptorsMin)
        out.push_back({Verdict::Stop, "descriptors",
                       fmt::format("a process may have {} file descriptors; sharing the UDP port "
                                   "alone takes about 80",
                                   files.rlim_cur),
                       "ulimit -n 1024"});
    if (has_kernel_device && locked.rlim_cur != RLIM_INFINITY)
        out.push_back({Verdict::Slow, "memlock",
                       fmt::format("{} of memory may be locked: with the machine's own RDMA device "
                                   "registering more fails (Feroce itself locks nothing)",
                                   amount(locked.rlim_cur)),
                       "ulimit -l unlimited"});
    else
        out.push_back(
            {Verdict::Good, "memlock",
             fmt::format("{} of memory may be locked, which does not matter: Feroce locks "
                         "nothing",
                         amount(locked.rlim_cur)),
             ""});
    if (const auto trouble = process::page_trouble(::geteuid()))
        out.push_back({Verdict::Slow, "state",
                       fmt::format("{}: feroce explain, res and stat will see nothing", *trouble),
                       "mount -t tmpfs tmpfs /dev/shm"});
    return out;
}

std::vector<std::string> kernel_devices() {
    std::vector<std::string> out;
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator("/sys/class/infiniband", error))
        out.push_back(entry.path().filename());
    std::sort(out.begin(), out.end());
    return out;
}

Findings check_kernel_devices(const std::vector<std::string>& devices) {
    if (devices.empty())
        return {
            {Verdict::Good, "kernel", "the kernel has no RDMA device: Feroce's are the only", ""}};
    return {{Verdict::Note, "kernel",
             fmt::format("the kernel has RDMA devices ({}): our own tools use those unless told "
                         "otherwise",
                         fmt::join(devices, ", ")),
             "export FEROCE_PROVIDER=soft"}};
}

// In a child: a namespace once entered is not left.
bool may_make_user_namespace() {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 ? 0 : 1);
    int status = 1;
    return child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
}

long huge_pages() {
    std::ifstream file("/proc/meminfo");
    std::string word;
    long count = 0;
    while (file >> word)
        if (word == "HugePages_Total:") file >> count;
    return count;
}

Findings check_comfort() {
    Findings out;
    if (!may_make_user_namespace())
        out.push_back({Verdict::Note, "namespaces",
                       "users may not make network namespaces: several machines cannot be played "
                       "on this one without root",
                       "sysctl -w kernel.unprivileged_userns_clone=1"});
    if (huge_pages() == 0)
        out.push_back({Verdict::Note, "hugepages",
                       "no huge pages are set aside: programs that insist on them fail, as with "
                       "ib_write_bw --use_hugepages",
                       "sysctl -w vm.nr_hugepages=64"});
    return out;
}

std::string mend_for(const std::string& why, const std::string& program) {
    if (why.find("RPATH") != std::string::npos) return "chrpath --delete " + program;
    if (why.find("static") != std::string::npos) return "link it with -libverbs, not -static";
    if (why.find("setuid") != std::string::npos)
        return "cp " + program + " . && feroce run -- ./" + fs::path(program).filename().string();
    return "build it for this machine";
}

Findings check_program(const std::string& command) {
    const std::string program = find_program(command);
    std::error_code error;
    if (program.empty() || !fs::exists(program, error))
        return {{Verdict::Stop, "program", command + " is not there",
                 "give its path, or install the package that has it"}};
    if (const auto why = why_not_ours(program, library_folder()))
        return {{Verdict::Stop, "program",
                 fmt::format("{} will not use Feroce: it {}", program, *why),
                 mend_for(*why, program)}};
    Findings out{{Verdict::Good, "program",
                  fmt::format("{} loads libibverbs.so.1 from {} under feroce run", program,
                              library_folder()),
                  ""}};
    if (!needs_verbs(program))
        out.push_back({Verdict::Note, "program",
                       fmt::format("{} does not name libibverbs.so.1 itself: another library or "
                                   "dlopen must",
                                   program),
                       ""});
    const std::string plain = verbs_library_of(program);
    out.push_back({Verdict::Note, "program",
                   plain.empty() ? "without feroce run there is no libibverbs.so.1 for it"
                                 : "without feroce run it would load " + plain,
                   ""});
    return out;
}

const char* name(Verdict verdict) {
    switch (verdict) {
        case Verdict::Good:
            return "ok";
        case Verdict::Note:
            return "note";
        case Verdict::Slow:
            return "slow";
        case Verdict::Stop:
            return "stop";
    }
    return "";
}

void append(Findings& to, Findings more) {
    for (Finding& finding : more) to.push_back(std::move(finding));
}

void print_words(const Findings& findings) {
    for (const Finding& finding : findings) {
        fmt::print("{:<5} {}\n", name(finding.verdict), finding.sentence);
        if (!finding.mend.empty()) fmt::print("      mend: {}\n", finding.mend);
    }
}

}  // namespace

int doctor(const std::string& program, const OutputOptions& options) {
    const Trial trial = try_device();  // Before this process uses the library.
    const std::vector<std::string> kernel = kernel_devices();
    Findings findings = check_library();
    append(findings, check_pci());
    append(findings, check_open(trial));
    ::unsetenv("FEROCE_PCAP");  // Nothing of ours is to be captured.
    append(findings, check_devices());
    append(findings, check_udp_port(trial));
    append(findings, check_buffers());
    append(findings, check_limits(!kernel.empty()));
    append(findings, check_kernel_devices(kernel));
    append(findings, check_gpu());
    append(findings, check_comfort());
    if (!program.empty()) append(findings, check_program(program));
    Json records = Json::array();
    for (const Finding& f : findings)
        records.push_back({{"verdict", name(f.verdict)},
                           {"topic", f.topic},
                           {"sentence", f.sentence},
                           {"mend", f.mend}});
    if (options.json)
        print_json(records, options);
    else
        print_words(findings);
    const bool stopped = std::any_of(findings.begin(), findings.end(),
                                     [](const Finding& f) { return f.verdict == Verdict::Stop; });
    return stopped ? 1 : 0;
}

}  // namespace feroce::cli
