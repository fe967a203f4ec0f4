// Clients that send what no client should: each request is refused with the right errno, and the
// server serves the others.
#include <array>
#include <cerrno>

#include "block/desk.hpp"
#include "block/messages.hpp"
#include "block/test_server.hpp"

namespace feroce::block {
namespace {

class HostileClients : public ServedDisks {
protected:
    HostileClients() {
        serve(all_kinds());
        good.emplace(open("memory"));
        rtrs::SessionOptions options;
        options.port = server->port();
        session = loop.run(sessions.open("bad", {{"127.0.0.1"}}, options)).value();
    }
    ~HostileClients() override {
        std::vector<std::byte> data(512);
        expect_done(good->read(0, data));
        EXPECT_EQ(session->statistics().paths[0].connects, 1u) << "its path was not closed";
    }

    int write(std::span<const std::byte> message, std::size_t size) {
        const std::vector<std::byte> data(size);
        const auto done = session->write(message, data).wait();
        return done ? 0 : done.error().code;
    }
    int read(std::span<const std::byte> message, std::size_t size) {
        answer.assign(size, std::byte{0xee});
        const auto done = session->read(message, answer).wait();
        return done ? 0 : done.error().code;
    }
    template <class Message>
    std::vector<std::byte> bytes_of(const Message& message) {
        std::vector<std::byte> out(Message::kSize);
        message.emit(std::span<std::byte, Message::kSize>(out));
        return out;
    }
    std::uint32_t open_disk(AccessMode access, const std::string& name) {
        EXPECT_EQ(read(bytes_of(OpenRequest{access, name}), OpenResponse::kSize), 0);
        return OpenResponse::parse(answer).value().device;
    }
    IoRequest io(IoKind kind, std::uint64_t sector, std::uint32_t size) {
        IoRequest request;
        request.device = device;
        request.kind = kind;
        request.sector = sector;
        request.size = size;
        return request;
    }

    rtrs::Client sessions{loop};
    std::optional<rtrs::Session> session;
    std::optional<Disk> good;
    std::vector<std::byte> answer;
    std::uint32_t device = 0;
};

TEST_F(HostileClients, MessagesThatAreNone) {
    EXPECT_EQ(write({}, 0), EINVAL);
    EXPECT_EQ(write(std::vector<std::byte>(3), 0), EINVAL);
    for (int type = 0; type < 300; ++type) {
        std::array<std::byte, 4> header{};
        store_le16(std::span(header).first<2>(), static_cast<std::uint16_t>(type));
        EXPECT_EQ(write(header, 0), EINVAL) << type;
        EXPECT_EQ(read(header, 64), EINVAL) << type;
    }
    EXPECT_EQ(write(std::vector<std::byte>(4000, std::byte{0xff}), 512), EINVAL);
}

TEST_F(HostileClients, QuestionsWithoutRoomForTheAnswer) {
    std::array<std::byte, SessionInfo::kSize> info;
    SessionInfo{}.emit(info, MessageType::SessionInfo);
    EXPECT_EQ(write(info, 0), EINVAL);
    EXPECT_EQ(read(info, 35), EINVAL);
    EXPECT_EQ(read(info, 100), 0);
    EXPECT_TRUE(std::all_of(answer.begin() + 5, answer.end(), [](std::byte b) {
        return b == std::byte{0};
    })) << "nothing of what lay in the chunk before";
    const auto open = bytes_of(OpenRequest{AccessMode::ReadOnly, "null"});
    EXPECT_EQ(write(open, 0), EINVAL);
    EXPECT_EQ(read(open, OpenResponse::kSize - 1), EINVAL);
    EXPECT_EQ(server->statistics().open, 1u) << "only the good client's";
}

TEST_F(HostileClients, DisksThatAreNotOpen) {
    EXPECT_EQ(read(bytes_of(io(IoKind::Read, 0, 512)), 512), ENOTCONN);
    device = device_number("memory");  // The other client has it open.
    EXPECT_EQ(read(bytes_of(io(IoKind::Read, 0, 512)), 512), ENOTCONN);
    EXPECT_EQ(write(bytes_of(CloseRequest{device}), 0), ENOTCONN);
    EXPECT_EQ(read(bytes_of(OpenRequest{AccessMode::ReadWrite, "memory"}), 56), EPERM);
    EXPECT_EQ(read(bytes_of(io(IoKind::Read, 0, 512)), 512), ENOTCONN)
        << "the refusal left nothing";
    for (const char* name : {"/", "/etc/passwd", "memory/", "./memory", "Memory"})
        EXPECT_EQ(read(bytes_of(OpenRequest{AccessMode::ReadOnly, name}), 56), ENOENT) << name;
    for (const char* name : {"..", "../memory", "memory/../null"})
        EXPECT_EQ(read(bytes_of(OpenRequest{AccessMode::ReadOnly, name}), 56), EINVAL) << name;
}

TEST_F(HostileClients, RequestsBesideTheDisk) {
    device = open_disk(AccessMode::ReadWrite, "file");
    const std::uint64_t end = kTestDiskSize / 512;
    EXPECT_EQ(read(bytes_of(io(IoKind::Read, end, 512)), 512), ENOSPC);
    EXPECT_EQ(read(bytes_of(io(IoKind::Read, end - 1, 1024)), 1024), ENOSPC);
    EXPECT_EQ(write(bytes_of(io(IoKind::Write, UINT64_MAX, 512)), 512), ENOSPC);
    EXPECT_EQ(write(bytes_of(io(IoKind::Write, UINT64_MAX / 512 + 1, 512)), 512), ENOSPC);
    EXPECT_EQ(write(bytes_of(io(IoKind::Discard, end - 1, UINT32_MAX)), 0), ENOSPC);
    EXPECT_EQ(write(bytes_of(io(IoKind::WriteZeroes, end, 512)), 0), ENOSPC);
    EXPECT_EQ(read(bytes_of(io(IoKind::Read, 0, 0)), 0), EINVAL);
    EXPECT_EQ(read(bytes_of(io(IoKind::Read, 0, 100)), 100), EINVAL) << "no whole block";
    EXPECT_EQ(server->statistics().reads + server->statistics().writes, 0u);
}

TEST_F(HostileClients, DataThatIsNotWhatTheMessageSays) {
    device = open_disk(AccessMode::ReadWrite, "file");
    EXPECT_EQ(read(bytes_of(io(IoKind::Read, 0, 4096)), 512), EINVAL);
    EXPECT_EQ(read(bytes_of(io(IoKind::Read, 0, 512)), 4096), EINVAL) << "would show old bytes";
    EXPECT_EQ(write(bytes_of(io(IoKind::Read, 0, 512)), 512), EINVAL);
    EXPECT_EQ(read(bytes_of(io(IoKind::Write, 0, 512)), 512), EINVAL);
    EXPECT_EQ(write(bytes_of(io(IoKind::Write, 0, 4096)), 512), EINVAL);
    EXPECT_EQ(write(bytes_of(io(IoKind::Discard, 0, 512)), 512), EINVAL);
    EXPECT_EQ(write(bytes_of(io(IoKind::Flush, 0, 0)), 512), EINVAL);
    EXPECT_EQ(write(bytes_of(io(IoKind::SecureErase, 0, 512)), 0), EOPNOTSUPP);
    auto unknown = bytes_of(io(IoKind::Read, 0, 512));
    unknown[16] = std::byte{77};
    EXPECT_EQ(read(unknown, 512), EOPNOTSUPP);
    EXPECT_EQ(server->statistics().in_flight, 0u);
}

TEST_F(HostileClients, ReadersDoNotWrite) {
    device = open_disk(AccessMode::ReadOnly, "file");
    EXPECT_EQ(open_disk(AccessMode::ReadWrite, "file"), device);
    EXPECT_EQ(write(bytes_of(io(IoKind::Write, 0, 512)), 512), EROFS)
        << "asking again gives no other rights";
    EXPECT_EQ(write(bytes_of(io(IoKind::WriteZeroes, 0, 512)), 0), EROFS);
    EXPECT_EQ(read(bytes_of(io(IoKind::Read, 0, 512)), 512), 0);
    EXPECT_EQ(write(bytes_of(CloseRequest{device}), 0), 0);
    EXPECT_EQ(write(bytes_of(CloseRequest{device}), 0), ENOTCONN);
}

}  // namespace
}  // namespace feroce::block
