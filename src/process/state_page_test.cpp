#include "process/state_page.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>

#include "base/random.hpp"

namespace feroce::process {
namespace {

using namespace std::chrono_literals;

StateSnapshot example() {
    StateSnapshot s;
    s.pid = static_cast<std::uint32_t>(::getpid());
    s.command = "example";
    s.devices = {"feroce_lo", "feroce_eth0"};
    s.resources = {
        {.device = "feroce_lo", .contexts = 1, .pds = 2, .cqs = 3, .regions = 4, .srqs = 5}};
    s.counters = {{"sent_pkts", 7}, {"rcvd_pkts", 8}};
    s.errors = {
        {.status = "IBV_WC_X", .cause = "of_x", .at_responder = true, .count = 0x1'0000'0001}};
    s.reasons = {
        {.qpn = 5, .peer_qpn = 6, .psn = 9, .kind = StateReasonKind::Refusal, .sentence = "why"}};
    s.qps.resize(3);
    s.qps[2].qpn = 0x12'3456;
    s.qps[2].source = Gid::from_v4(0x7f00'0001);
    return s;
}

TEST(StateEncoding, RoundTrip) {
    const auto back = decode(encode(example()));
    ASSERT_TRUE(back);
    EXPECT_EQ(back->command, "example");
    EXPECT_EQ(back->devices, example().devices);
    ASSERT_EQ(back->resources.size(), 1u);
    EXPECT_EQ(back->resources[0].device, "feroce_lo");
    EXPECT_EQ(back->resources[0].contexts, 1u);
    EXPECT_EQ(back->resources[0].srqs, 5u);
    EXPECT_EQ(back->counters[1].value, 8u);
    ASSERT_EQ(back->errors.size(), 1u);
    EXPECT_EQ(back->errors[0].status, "IBV_WC_X");
    EXPECT_EQ(back->errors[0].cause, "of_x");
    EXPECT_TRUE(back->errors[0].at_responder);
    EXPECT_EQ(back->errors[0].count, 0x1'0000'0001u);
    EXPECT_EQ(back->reasons[0].sentence, "why");
    EXPECT_EQ(back->reasons[0].kind, StateReasonKind::Refusal);
    EXPECT_EQ(back->qps[2].qpn, 0x12'3456u);
    EXPECT_EQ(back->qps[2].source, Gid::from_v4(0x7f00'0001));
}

TEST(StateEncoding, EveryPrefixIsRefused) {
    const std::vector<std::byte> whole = encode(example());
    for (std::size_t size = 0; size < whole.size(); ++size)
        EXPECT_FALSE(decode(ByteView(whole).first(size))) << size;
}

TEST(StateEncoding, HostileBytesDoNotHurt) {
    Prng random(1);
    const std::vector<std::byte> whole = encode(example());
    for (int i = 0; i < 20'000; ++i) {
        std::vector<std::byte> bytes = whole;
        for (std::uint64_t n = random.below(8) + 1; n > 0; --n)
            bytes[random.below(bytes.size())] = static_cast<std::byte>(random.below(256));
        const auto snapshot = decode(bytes);
        if (!snapshot) continue;
        for (const char c : snapshot->command) EXPECT_TRUE(c >= ' ' && c <= '~');
    }
}

// A process that owns a page, until the test lets go of it.
class Owner {
public:
    // `body` runs in the child with its page.
    explicit Owner(const std::function<void(StatePage&)>& body) {
        int ready[2];
        if (::pipe(ready) != 0) std::abort();
        child_ = ::fork();
        if (child_ == 0) {
            Result<std::unique_ptr<StatePage>> page = StatePage::create(::geteuid());
            if (!page || !(*page)->write(encode(example()))) ::_exit(1);
            (void)!::write(ready[1], "r", 1);
            body(**page);
            (void)!::write(ready[1], "d", 1);
            for (;;) ::pause();
        }
        ::close(ready[1]);
        ready_ = ready[0];
        await('r');
    }
    ~Owner() {
        end();
        ::unlink(path().c_str());
    }
    void await(char what) {
        char byte = 0;
        EXPECT_EQ(::read(ready_, &byte, 1), 1) << "the owner could not make its page";
        EXPECT_EQ(byte, what);
    }
    void end() {
        if (ready_ < 0) return;
        ::kill(child_, SIGKILL);
        ::waitpid(child_, nullptr, 0);
        ::close(std::exchange(ready_, -1));
    }
    pid_t pid() const { return child_; }
    std::string path() const { return *user_directory(::geteuid()) + "/" + std::to_string(child_); }

private:
    pid_t child_ = -1;
    int ready_ = -1;
};

std::optional<StateReading> find(pid_t pid, std::chrono::milliseconds patience) {
    for (StateReading& reading : read_state_pages(::geteuid(), patience))
        if (reading.snapshot.pid == static_cast<std::uint32_t>(pid)) return std::move(reading);
    return std::nullopt;
}

// Until it is killed: other processes of this user may ask as well.
void answer(StatePage& page, const StateSnapshot& snapshot) {
    for (std::uint32_t seen = 0;;) {
        page.wait_for_request(seen);
        seen = page.request();
        (void)page.write(encode(snapshot));
    }
}

TEST(StatePage, AnswersWhenAsked) {
    const Owner owner([](StatePage& page) {
        StateSnapshot s = example();
        s.command = "asked";
        answer(page, s);
    });
    const auto reading = find(owner.pid(), 10s);
    ASSERT_TRUE(reading);
    EXPECT_TRUE(reading->alive);
    EXPECT_TRUE(reading->fresh);
    EXPECT_EQ(reading->snapshot.command, "asked");
}

TEST(StatePage, ASilentOwnerIsShownAsItWas) {
    const Owner owner([](StatePage&) {});
    const auto reading = find(owner.pid(), 1ms);
    ASSERT_TRUE(reading);
    EXPECT_TRUE(reading->alive);
    EXPECT_FALSE(reading->fresh);
}

TEST(StatePage, TellsWhichConnectionsWentWithTheProcess) {
    Owner owner([](StatePage& page) {
        page.note_connection(Qpn{0x1'0001}, Qpn{7});
        page.note_connection(Qpn{0x1'0002}, Qpn{8});
        page.note_connection(Qpn{0x1'0002}, Qpn{0});  // Destroyed.
        page.note_connection(Qpn{0x1'0401}, Qpn{9});  // Its place is that of the first.
        page.note_connection(Qpn{0x1'0003}, Qpn{10});
        page.note_connection(Qpn{0x1'0801}, Qpn{11});  // So is this.
        page.note_connection(Qpn{0x1'0401}, Qpn{0});
    });
    owner.await('d');
    owner.end();
    const auto reading = find(owner.pid(), 1ms);
    ASSERT_TRUE(reading);
    EXPECT_EQ(reading->connections,
              (std::vector<Connection>{{0x1'0001, 7}, {0x1'0003, 10}, {0x1'0801, 11}}));
}

TEST(StatePage, ShowsWhatWasNotedAtOnce) {
    Owner owner([](StatePage& page) {
        StateReason reason;
        reason.qpn = 7;
        reason.kind = StateReasonKind::Local;
        page.note(0, reason, "refused");
        page.count_note(0, 3);
        page.note(1, reason, "overwritten");
        page.note(1, reason, "noted later");
        reason.qpn = 5;
        page.note(2, reason, "why");  // As in the snapshot.
    });
    owner.await('d');
    owner.end();
    const auto reading = find(owner.pid(), 1ms);
    ASSERT_TRUE(reading);
    std::vector<std::string> said;
    for (const StateReason& reason : reading->snapshot.reasons) said.push_back(reason.sentence);
    EXPECT_EQ(said, (std::vector<std::string>{"why", "refused, 3 times", "noted later"}));
}

// That a process was killed explains something, too; one that ends well removes its page.
TEST(StatePage, OutlivesItsOwnerUnlessRemoved) {
    Owner killed([](StatePage& page) {
        StateSnapshot s = example();
        s.reasons.clear();
        (void)page.write(encode(s));
    });
    Owner tidy([](StatePage& page) { page.remove(); });
    killed.await('d');
    tidy.await('d');
    killed.end();
    tidy.end();
    const auto reading = find(killed.pid(), 1ms);
    ASSERT_TRUE(reading);
    EXPECT_FALSE(reading->alive);
    EXPECT_FALSE(find(tidy.pid(), 1ms));
    EXPECT_NE(::access(tidy.path().c_str(), F_OK), 0);
}

TEST(StatePage, GrowsWithItsSnapshot) {
    const Owner owner([](StatePage& page) {
        StateSnapshot s = example();
        s.qps.resize(20'000);
        answer(page, s);
    });
    const auto reading = find(owner.pid(), 10s);
    ASSERT_TRUE(reading);
    EXPECT_EQ(reading->snapshot.qps.size(), 20'000u);
}

TEST(StatePage, CutAndScribbledPagesAreNotShown) {
    Owner owner([](StatePage&) {});
    ASSERT_EQ(::truncate(owner.path().c_str(), 100), 0);
    EXPECT_FALSE(find(owner.pid(), 1ms));
    const int fd = ::open(owner.path().c_str(), O_WRONLY | O_CLOEXEC);
    const std::vector<std::byte> noise(4096, std::byte{0xee});
    ASSERT_EQ(::pwrite(fd, noise.data(), noise.size(), 0), 4096);
    ::close(fd);
    EXPECT_FALSE(find(owner.pid(), 1ms));
    ::unlink(owner.path().c_str());
}

TEST(StatePage, LinksAndForeignFilesAreNotFollowed) {
    const std::string link = *user_directory(::geteuid()) + "/1";
    ::unlink(link.c_str());
    ASSERT_EQ(::symlink("/etc/passwd", link.c_str()), 0);
    EXPECT_FALSE(find(1, 1ms));
    EXPECT_EQ(::access("/etc/passwd", F_OK), 0);
    ::unlink(link.c_str());
}

// A process that has dropped root since it entered the port is still found, and finds, among
// root's.
TEST(StatePage, IsThatOfTheUserGiven) {
    constexpr std::uint32_t kOther = 65'432;
    if (::geteuid() != 0) GTEST_SKIP() << "takes root";
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        const bool changed = ::setresuid(kOther, kOther, kOther) == 0;
        const auto root = StatePage::create(0);  // No longer ours to write.
        const auto page = StatePage::create(kOther);
        const bool good = changed && !root && page && (*page)->write(encode(example()));
        (void)!::write(ready[1], good ? "r" : "f", 1);
        for (;;) ::pause();
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    EXPECT_EQ(byte, 'r');
    const std::vector<StateReading> readings = read_state_pages(kOther, 1ms);
    ASSERT_EQ(readings.size(), 1u);
    EXPECT_EQ(readings[0].snapshot.pid, static_cast<std::uint32_t>(child));
    EXPECT_TRUE(readings[0].alive);
    EXPECT_FALSE(find(child, 1ms));
    struct stat info {};
    if (::stat("/dev/shm/feroce-0", &info) == 0) {
        EXPECT_EQ(info.st_uid, 0u);
    }
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    for (const int fd : ready) ::close(fd);
    const std::string folder = *user_directory(kOther);
    ::unlink((folder + "/" + std::to_string(child)).c_str());
    ::rmdir(folder.c_str());
}

// Of this process's memory, what is mapped from the file and may be read.
std::uintmax_t readable_bytes(const std::string& path) {
    std::ifstream maps("/proc/self/maps");
    std::uintmax_t bytes = 0;
    for (std::string line; std::getline(maps, line);) {
        char* end = nullptr;
        const std::uintmax_t first = std::strtoull(line.c_str(), &end, 16);
        const std::uintmax_t last = std::strtoull(end + 1, &end, 16);
        if (end[1] == 'r' && line.ends_with(path)) bytes += last - first;
    }
    return bytes;
}

// Valgrind reads all readable memory of a program that ends: a signal for every word beyond the
// file's end kept it busy for a minute.
TEST(StatePage, HasNoReadableMemoryThatItsFileHasNot) {
    Owner owner([](StatePage& page) {
        const std::string path = *user_directory(::geteuid()) + "/" + std::to_string(::getpid());
        const auto agrees = [&] {
            return readable_bytes(path) == std::filesystem::file_size(path);
        };
        StateSnapshot large = example();
        large.qps.resize(5000);
        if (!agrees() || !page.write(encode(large)) || !agrees()) ::_exit(1);
    });
    owner.await('d');
    const auto reading = find(owner.pid(), 1ms);
    ASSERT_TRUE(reading);
    EXPECT_EQ(reading->snapshot.qps.size(), 5000u);
}

TEST(StatePage, AReaderMakesNoDirectory) {
    constexpr std::uint32_t kNobodyThere = 65'431;
    EXPECT_TRUE(read_state_pages(kNobodyThere, 1ms).empty());
    EXPECT_NE(::access("/dev/shm/feroce-65431", F_OK), 0);
}

TEST(StatePage, IsPrivate) {
    const Owner owner([](StatePage&) {});
    struct stat info {};
    ASSERT_EQ(::stat(owner.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0600u);
    ASSERT_EQ(::stat(user_directory(::geteuid())->c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0700u);
}

}  // namespace
}  // namespace feroce::process
