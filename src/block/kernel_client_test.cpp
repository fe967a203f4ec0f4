// A client that knows no generations, as the kernel's: when it may go on writing a disk, and when
// it must not, also after its server was started again with other exports.
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "block/client_book.hpp"
#include "block/test_stores.hpp"

namespace feroce::block {
namespace kernel_client_test {
namespace {

using namespace std::chrono_literals;

// A client that speaks as the kernel's: it opens a disk again when its session is back, with no
// CLOSE before, and knows no generations.
class KernelClient : public Generations {
protected:
    void connect(const std::string& name = "kernel") {
        rtrs::SessionOptions options;
        options.port = server->port();
        options.extension = false;
        session = loop.run(sessions.open(name, {{"127.0.0.1"}}, options)).value();
    }
    template <class Message>
    Bytes bytes_of(const Message& message) {
        Bytes out(Message::kSize);
        message.emit(std::span<std::byte, Message::kSize>(out));
        return out;
    }
    Export export_of(const std::string& name, Store& of) {
        return {
            .name = name, .backend = std::make_shared<StoreBackend>(of), .read_only = of.read_only};
    }
    // As a reload that gives the name another file.
    void replace(const std::string& name, Store& by) {
        expect_done(server->withdraw(name));
        ASSERT_TRUE(server->add(export_of(name, by)));
    }
    void restart_with(std::vector<Export> all) {
        const std::uint16_t port = server->port();
        stop();
        serve(std::move(all), port);
    }
    // For a moment in which the client is cut off.
    void another_writes() {
        const Disk second = open_by(other, "second").value();
        EXPECT_EQ(write(second, 'B', {.fua = true}), 0);
        expect_done(second.close());
    }
    int open_disk(const std::string& name = "data", AccessMode access = AccessMode::ReadWrite) {
        Bytes answer(OpenResponse::kSize);
        const auto done = session->read(bytes_of(OpenRequest{access, name}), answer).wait();
        if (done) device = OpenResponse::parse(answer).value().device;
        return done ? 0 : done.error().code;
    }
    int close_disk() {
        const auto done = session->write(bytes_of(CloseRequest{device}), Bytes{}).wait();
        return done ? 0 : done.error().code;
    }
    void open_at_server() {
        serve(exports());
        connect();
        ASSERT_EQ(open_disk(), 0);
    }
    int ask(IoKind kind) {
        IoRequest io;
        io.device = device;
        io.kind = kind;
        io.size = kind == IoKind::Flush ? 0 : 4096;
        const Bytes data(io.size, std::byte{'K'});
        Bytes nothing;
        const auto done = kind == IoKind::Flush ? session->read(bytes_of(io), nothing).wait()
                                                : session->write(bytes_of(io), data).wait();
        return done ? 0 : done.error().code;
    }

    rtrs::Client sessions{loop};
    std::optional<rtrs::Session> session;
    std::uint32_t device = 0;
};

TEST_F(KernelClient, ItsOwnReopenClearsNoFailedFlush) {
    ASSERT_NO_FATAL_FAILURE(open_at_server());
    ASSERT_EQ(ask(IoKind::Write), 0);
    store.failing_flushes = 1;
    EXPECT_EQ(ask(IoKind::Flush), EIO);
    EXPECT_EQ(ask(IoKind::Flush), EIO);
    restart();
    ASSERT_EQ(open_disk(), 0) << "it comes back, and may";
    EXPECT_EQ(ask(IoKind::Flush), EIO) << "but what it lost is lost";
    EXPECT_EQ(close_disk(), 0);
    ASSERT_EQ(open_disk(), 0);
    EXPECT_EQ(ask(IoKind::Flush), 0);
}

TEST_F(KernelClient, ItIsToldThatAnotherWasGranted) {
    ASSERT_NO_FATAL_FAILURE(open_at_server());
    ASSERT_EQ(ask(IoKind::Write), 0);
    const std::uint16_t port = server->port();
    stop();
    ASSERT_TRUE(session->disconnect_path(0));
    serve(exports(), port);
    const Disk second = open_by(other, "second").value();
    ASSERT_EQ(write(second, 'B', {.fua = true}), 0);
    expect_done(second.close());
    ASSERT_TRUE(session->reconnect_path(0));
    EXPECT_EQ(open_disk(), ESTALE);
    EXPECT_EQ(open_disk(), ESTALE);
    EXPECT_EQ(ask(IoKind::Write), ENOTCONN);
    EXPECT_EQ(content(), 'B');
    EXPECT_EQ(close_disk(), ENOTCONN) << "it gives up,";
    EXPECT_EQ(open_disk(), 0) << "and begins again";
    EXPECT_EQ(ask(IoKind::Write), 0);
}

// Its file system must not land on another content that took the disk's name.
TEST_F(KernelClient, ItDoesNotGoOnWithADiskThatTookTheName) {
    for (const bool gives_up_before : {false, true}) {
        serve(exports());
        connect(gives_up_before ? "patient" : "kernel");
        ASSERT_EQ(open_disk(), 0);
        expect_done(server->withdraw("data"));
        EXPECT_EQ(ask(IoKind::Write), ENOTCONN);
        EXPECT_EQ(open_disk(), ENOENT);
        if (gives_up_before) {
            EXPECT_EQ(close_disk(), ENOTCONN);
        }
        Store next;
        next.record.store = 9;
        ASSERT_TRUE(server->add({.name = "data", .backend = std::make_shared<StoreBackend>(next)}));
        if (!gives_up_before) {
            EXPECT_EQ(open_disk(), ESTALE);
            EXPECT_EQ(ask(IoKind::Write), ENOTCONN);
            EXPECT_EQ(close_disk(), ENOTCONN) << "it gives up,";
        }
        EXPECT_EQ(open_disk(), 0) << "and begins again";
        EXPECT_EQ(ask(IoKind::Write), 0);
        stop();
    }
}

// A record tells of it, also when no session does any more.
TEST_F(KernelClient, AForgottenSessionDoesNotGoOnWithADiskThatTookTheName) {
    for (const bool overtaken : {false, true}) {
        serve(exports());
        connect(overtaken ? "overtaken" : "kernel");
        ASSERT_EQ(open_disk(), 0);
        const std::uint16_t port = server->port();
        stop();
        ASSERT_TRUE(session->disconnect_path(0));
        serve(exports(), port);
        if (overtaken) expect_done(open_by(other, "second").value().close());
        Store next;
        next.record.store = 9;
        replace("data", next);
        ASSERT_TRUE(session->reconnect_path(0));
        EXPECT_EQ(open_disk(), ESTALE) << overtaken;
        EXPECT_EQ(close_disk(), ENOTCONN) << "it gives up,";
        EXPECT_EQ(open_disk(), 0) << "and begins again";
        stop();
    }
}

TEST_F(KernelClient, ARestartForgetsNoClientThatMayNotGoOn) {
    ASSERT_NO_FATAL_FAILURE(open_at_server());
    Store next;
    next.record.store = 9;
    replace("data", next);
    const std::uint16_t port = server->port();
    stop();
    serve({export_of("data", next)}, port);
    EXPECT_EQ(open_disk(), ESTALE);
}

TEST_F(KernelClient, ItGoesOnWhenAReloadIsTakenBack) {
    ASSERT_NO_FATAL_FAILURE(open_at_server());
    Store next;
    next.record.store = 9;
    replace("data", next);
    EXPECT_EQ(open_disk(), ESTALE);
    replace("data", store);
    ASSERT_EQ(open_disk(), 0);
    EXPECT_EQ(ask(IoKind::Write), 0);
    EXPECT_EQ(content(), 'K');
}

TEST_F(KernelClient, ItDoesNotGoOnWithADiskThatAReadOnlyOneAnnounced) {
    ASSERT_NO_FATAL_FAILURE(open_at_server());
    Store next;
    next.record.store = 9;
    next.read_only = true;
    replace("data", next);
    EXPECT_TRUE(open_by(other, "reader", AccessMode::ReadOnly)) << "it has no record to keep";
    EXPECT_EQ(open_disk(), ESTALE);
    next.read_only = false;
    replace("data", next);
    EXPECT_EQ(open_disk(), ESTALE);
}

TEST_F(KernelClient, ItMayOpenADiskWithoutARecordWhenItHasClosedTheOldOne) {
    ASSERT_NO_FATAL_FAILURE(open_at_server());
    expect_done(server->withdraw("data"));
    ASSERT_TRUE(server->add({.name = "data", .backend = null_backend(kTestDiskSize)}));
    EXPECT_EQ(open_disk(), ESTALE);
    EXPECT_EQ(close_disk(), ENOTCONN);
    EXPECT_EQ(open_disk(), 0);
}

// "kernel/data" comes before "data" for the session "kernel".
TEST_F(KernelClient, ADiskOfItsOwnDoesNotTakeThePlaceOfTheOneItWrites) {
    ASSERT_NO_FATAL_FAILURE(open_at_server());
    Store own;
    own.record.store = 9;
    ASSERT_TRUE(server->add(export_of("kernel/data", own)));
    EXPECT_EQ(open_disk(), ESTALE);
    EXPECT_EQ(ask(IoKind::Write), 0) << "the one that it has open is still there";
    EXPECT_EQ(own.bytes[0], std::byte{0});
    EXPECT_EQ(close_disk(), 0);
    ASSERT_EQ(open_disk(), 0);
    EXPECT_EQ(ask(IoKind::Write), 0);
    EXPECT_EQ(own.bytes[0], std::byte{'K'});
    expect_done(server->withdraw("kernel/data"));
    EXPECT_EQ(open_disk(), ESTALE) << "nor does everybody's take the place of its own";
    EXPECT_EQ(close_disk(), ENOTCONN);
    EXPECT_EQ(open_disk(), 0);
}

// The content counts, not the name that it is exported by.
TEST_F(KernelClient, ItGoesOnWithItsDiskUnderAnotherName) {
    ASSERT_NO_FATAL_FAILURE(open_at_server());
    expect_done(server->withdraw("data"));
    ASSERT_TRUE(server->add(export_of("kernel/data", store)));
    ASSERT_EQ(open_disk(), 0);
    EXPECT_EQ(ask(IoKind::Write), 0);
}

// The record of the other store has never heard of the client.
TEST_F(KernelClient, ItDoesNotGoOnWithADiskThatTookTheNameAtARestart) {
    ASSERT_NO_FATAL_FAILURE(open_at_server());
    ASSERT_EQ(ask(IoKind::Write), 0);
    Store next;
    next.record.store = 9;
    restart_with({export_of("data", next), export_of("old", store)});
    EXPECT_EQ(open_disk(), ESTALE);
    EXPECT_EQ(ask(IoKind::Write), ENOTCONN);
    EXPECT_EQ(next.bytes[0], std::byte{0});
    restart_with(exports());
    EXPECT_EQ(open_disk(), 0) << "its own disk has the name again";
    EXPECT_EQ(ask(IoKind::Write), 0);
}

TEST_F(KernelClient, ItDoesNotGoOnWithAnotherDiskOfItsOwn) {
    Store next;
    next.record.store = 9;
    serve({export_of("data", store), export_of("next", next)});
    connect();
    ASSERT_EQ(open_disk("next"), 0);
    ASSERT_EQ(open_disk("data"), 0);
    restart_with({export_of("data", next), export_of("next", store)});
    EXPECT_EQ(open_disk("data"), ESTALE) << "it writes both, but by other names";
    EXPECT_EQ(open_disk("next"), ESTALE);
}

TEST_F(KernelClient, ADiskOfItsOwnThatCameWithARestartDoesNotTakeThePlaceOfTheOneItWrites) {
    ASSERT_NO_FATAL_FAILURE(open_at_server());
    Store own;
    own.record.store = 9;
    restart_with({export_of("data", store), export_of("kernel/data", own)});
    EXPECT_EQ(open_disk(), ESTALE);
    EXPECT_EQ(close_disk(), ENOTCONN) << "it gives up,";
    EXPECT_EQ(open_disk(), 0) << "and begins again";
}

TEST_F(KernelClient, ItIsToldHoweverManyWereGrantedSince) {
    ASSERT_NO_FATAL_FAILURE(open_at_server());
    const auto overtaken = std::exchange(session, std::nullopt);
    ASSERT_TRUE(overtaken->disconnect_path(0));
    restart();
    for (int i = 0; i < 70; ++i) {
        connect("later-" + std::to_string(i));
        ASSERT_EQ(open_disk(), 0) << "a session that has just begun";
        ASSERT_TRUE(server->evict("data"));
        ASSERT_TRUE(loop.run(session->close()));
    }
    session = overtaken;
    ASSERT_TRUE(session->reconnect_path(0));
    EXPECT_EQ(open_disk(), ESTALE);
}

// Where the record lies is up to the configuration.
TEST_F(KernelClient, AnOvertakenOneIsToldThoughTheRecordOfTheFileIsGone) {
    const auto file = [&](const std::string& at, const std::string& state) {
        return std::vector<Export>{
            {.name = "data", .backend = file_backend(loop, at, {.state = state}).value()}};
    };
    const std::string elsewhere = folder + "/elsewhere";
    for (const std::string how : {"removed", "moved", "other state"}) {
        serve(file(path, ""));
        connect(how);
        ASSERT_EQ(open_disk(), 0) << how;
        const std::uint16_t port = server->port();
        stop();
        ASSERT_TRUE(session->disconnect_path(0));
        serve(file(path, ""), port);
        another_writes();
        stop();
        if (how == "removed") std::filesystem::remove(path + ".feroce");
        if (how == "moved") std::filesystem::rename(path, elsewhere);
        const bool moved = how == "moved";
        serve(file(moved ? elsewhere : path, how == "other state" ? folder + "/state" : ""), port);
        ASSERT_TRUE(session->reconnect_path(0));
        EXPECT_EQ(open_disk(), ESTALE) << how;
        stop();
        if (moved) std::filesystem::rename(elsewhere, path);
    }
}

// Known since its first connection, so that what it has not opened here it has nowhere.
TEST_F(KernelClient, ItMayOpenAFurtherDiskThatAReloadBrings) {
    ASSERT_NO_FATAL_FAILURE(open_at_server());
    ASSERT_TRUE(session->disconnect_path(0));
    ASSERT_TRUE(session->reconnect_path(0));
    Store next;
    next.record.store = 9;
    ASSERT_TRUE(server->add(export_of("next", next)));
    EXPECT_EQ(open_disk("next"), 0);
    EXPECT_EQ(ask(IoKind::Write), 0);
    EXPECT_EQ(next.bytes[0], std::byte{'K'});
}

TEST_F(KernelClient, TheOneThatAMachineMovedToGoesOnAfterARestart) {
    serve(exports());
    connect("from");
    ASSERT_EQ(open_disk(), 0);
    std::optional<rtrs::Session> from = session;
    connect("to");
    ASSERT_EQ(open_disk("data", AccessMode::Migration), 0);
    EXPECT_EQ(store.record.holders[0].name, store.record.holders[1].name);
    std::swap(session, from);
    ASSERT_EQ(close_disk(), 0);
    std::swap(session, from);
    restart();
    ASSERT_EQ(open_disk("data", AccessMode::Migration), 0);
    EXPECT_EQ(ask(IoKind::Write), 0);
    EXPECT_EQ(content(), 'K');
    std::swap(session, from);
    EXPECT_EQ(open_disk(), ESTALE) << "it has closed it, and nothing here says so any more";
}

// Without a book nothing tells its first OPEN of a disk from one that it repeats.
TEST_F(KernelClient, ItMayOpenAFurtherDiskAfterARestartIfTheServerHasABook) {
    for (const bool has_book : {false, true}) {
        if (has_book) book = folder + "/book";
        Store next;
        next.record.store = 9;
        serve({export_of("data", store), export_of("next", next)});
        connect(has_book ? "known" : "unknown");
        ASSERT_EQ(open_disk(), 0);
        restart_with({export_of("data", store), export_of("next", next)});
        EXPECT_EQ(open_disk("next"), has_book ? 0 : ESTALE);
        EXPECT_EQ(open_disk(), 0);
        EXPECT_EQ(close_disk(), 0);
        restart_with({export_of("data", store), export_of("next", next)});
        EXPECT_EQ(open_disk(), has_book ? 0 : ESTALE) << "it had closed it";
        stop();
    }
}

TEST_F(KernelClient, ABookKnowsWhatItHadUnderWhichName) {
    book = folder + "/book";
    Store next;
    next.record.store = 9;
    serve({export_of("data", store), export_of("next", next)});
    connect();
    ASSERT_EQ(open_disk("next"), 0);
    ASSERT_EQ(open_disk("data"), 0);
    restart_with({export_of("data", next), export_of("next", store)});
    EXPECT_EQ(open_disk("data"), ESTALE);
    EXPECT_EQ(open_disk("next"), ESTALE);
    Store third;
    third.record.store = 11;
    restart_with(
        {export_of("data", store), export_of("next", third), export_of("kernel/more", next)});
    EXPECT_EQ(open_disk("next"), ESTALE);
    EXPECT_EQ(open_disk("more"), 0) << "by this name it had nothing";
    EXPECT_EQ(open_disk("data"), 0);
    const std::uint16_t port = server->port();
    stop();
    ASSERT_TRUE(session->disconnect_path(0));
    serve(exports(), port);
    another_writes();
    stop();
    serve(exports(), port);
    ASSERT_TRUE(session->reconnect_path(0));
    EXPECT_EQ(open_disk("data"), ESTALE) << "another was granted since";
}

// A server that is killed between the record and the book leaves the same.
TEST_F(KernelClient, ItIsGrantedNothingThatTheBookDoesNotKnow) {
    book = folder + "/state/book";
    std::filesystem::create_directory(folder + "/state");
    serve(exports());
    std::filesystem::remove_all(folder + "/state");
    connect();
    EXPECT_EQ(open_disk(), ENOENT) << "there is no place for the book";
    EXPECT_TRUE(server->writers().empty());
    EXPECT_EQ(store.record.generation, 1u) << "but the record has it";
    std::filesystem::create_directory(folder + "/state");
    restart();
    EXPECT_EQ(open_disk(), 0);
    EXPECT_EQ(store.record.generation, 1u);
    EXPECT_EQ(ask(IoKind::Write), 0);
}

// What it has open was saved before: there is nothing to save for its next OPEN.
TEST_F(KernelClient, ItGoesOnWhileTheBookCannotBeSaved) {
    book = folder + "/state/book";
    std::filesystem::create_directory(folder + "/state");
    ASSERT_NO_FATAL_FAILURE(open_at_server());
    std::filesystem::remove_all(folder + "/state");
    ASSERT_TRUE(session->reconnect_path(0));
    EXPECT_EQ(open_disk(), 0);
    EXPECT_EQ(ask(IoKind::Write), 0);
}

// It never had the disk, so another's writes in between are no reason to refuse it.
TEST_F(KernelClient, AGrantThatCouldNotBeSavedIsForgotten) {
    book = folder + "/state/book";
    std::filesystem::create_directory(folder + "/state");
    serve(exports());
    std::filesystem::remove_all(folder + "/state");
    connect("first");
    ASSERT_EQ(open_disk(), ENOENT);
    std::filesystem::create_directory(folder + "/state");
    auto first = std::move(session);
    connect("second");
    ASSERT_EQ(open_disk(), 0);
    EXPECT_EQ(ask(IoKind::Write), 0);
    EXPECT_EQ(close_disk(), 0);
    std::swap(session, first);
    EXPECT_EQ(open_disk(), 0);
    EXPECT_EQ(ask(IoKind::Write), 0);
}

TEST_F(KernelClient, ABookThatIsNoneIsRefused) {
    book = folder + "/book";
    ASSERT_NO_FATAL_FAILURE(open_at_server());
    stop();
    std::ostringstream whole;
    whole << std::ifstream(book).rdbuf();
    EXPECT_NE(whole.str().find("disk "), std::string::npos);
    for (std::size_t size = 0; size + 1 < whole.str().size(); ++size) {
        std::istringstream part(whole.str().substr(0, size));
        EXPECT_FALSE(ClientBook().parse(part)) << size;
    }
    std::ofstream(book) << "feroce-client-book 2\nend\n";
    const auto opened = DiskServer::open(loop, {.address = "127.0.0.1"}, exports(), book);
    ASSERT_FALSE(opened);
    EXPECT_NE(opened.error().why.find("is no client book"), std::string::npos)
        << opened.error().why;
}

// A server that is killed still has its lock for a moment.
TEST_F(KernelClient, ABookIsWaitedFor) {
    book = folder + "/book";
    const int lock = ::open((book + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_GE(lock, 0);
    ASSERT_EQ(::flock(lock, LOCK_EX), 0);
    const int watch = ::inotify_init1(IN_CLOEXEC);
    ASSERT_GE(::inotify_add_watch(watch, (book + ".lock").c_str(), IN_CLOSE_WRITE), 0);
    std::thread dying([&] {
        pollfd tried{.fd = watch, .events = POLLIN, .revents = 0};
        EXPECT_EQ(::poll(&tried, 1, 60'000), 1) << "the server never asked for the lock";
        ::close(lock);
    });
    serve(exports());
    dying.join();
    ::close(watch);
    EXPECT_EQ(server->without_book(), "");
}

TEST_F(KernelClient, AFolderThatCannotHaveABookIsNamed) {
    std::ofstream(folder + "/file") << "no folder";
    ::setenv("STATE_DIRECTORY", (folder + "/file/state").c_str(), 1);
    const auto none = default_book(1234);
    ::setenv("STATE_DIRECTORY", (folder + "/state").c_str(), 1);
    const auto some = default_book(1234);
    ::unsetenv("STATE_DIRECTORY");
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, ENOTDIR);
    EXPECT_NE(none.error().why.find(folder + "/file/state cannot be made"), std::string::npos)
        << none.error().why;
    ASSERT_TRUE(some);
    EXPECT_EQ(*some, folder + "/state/clients-1234");
    EXPECT_FALSE(default_book(0)) << "it would be found by nobody";
}

TEST_F(KernelClient, ABookHasOneServer) {
    book = folder + "/book";
    serve(exports());
    rtrs::ServerOptions options;
    options.address = "127.0.0.1";
    options.port = 0;
    EXPECT_EQ(server->without_book(), "");
    auto second = DiskServer::open(loop, options, {}, book);
    ASSERT_TRUE(second) << "it goes without, and says why";
    EXPECT_NE(second->without_book().find(book + ".lock"), std::string::npos)
        << second->without_book();
    expect_done(second->stop());
    connect();
    ASSERT_EQ(open_disk(), 0);
    EXPECT_TRUE(std::filesystem::exists(book));
    EXPECT_TRUE(std::filesystem::exists(book + ".lock")) << "the second has left it alone";
    stop();
    EXPECT_FALSE(std::filesystem::exists(book + ".lock"));
}

TEST(ClientBook, AClientThatIsHereIsNotForgotten) {
    const auto client = [](std::size_t i) {
        return ClientId{std::byte{1}, static_cast<std::byte>(i >> 8), static_cast<std::byte>(i)};
    };
    const auto is_unknown = [&](const ClientBook& book, std::size_t i) {
        return book.past(client(i), "disk", {1, 2}).unknown;
    };
    ClientBook book;
    const std::size_t all = 2 * ClientBook::kMaxClients;
    for (std::size_t i = 0; i < all; ++i) {
        book.came(client(i), false);
        if (i != 0) book.left(client(i));
    }
    EXPECT_EQ(book.size(), ClientBook::kMaxClients);
    EXPECT_FALSE(is_unknown(book, 0));
    EXPECT_TRUE(is_unknown(book, 1)) << "nothing was open, but nothing says so any more";
    EXPECT_FALSE(is_unknown(book, all - 1));
}

TEST(ClientBook, OfAClientThatComesBackAFewClosedDisksAreKept) {
    const ClientId client{std::byte{1}};
    ClientBook book;
    book.came(client, true);
    const auto is_unknown = [&](std::uint32_t device) {
        return book.past(client, "disk", {device, device}).unknown;
    };
    EXPECT_TRUE(is_unknown(0));
    for (std::uint32_t i = 0; i <= ClientBook::kMaxClosed; ++i) book.closed(client, i);
    EXPECT_TRUE(is_unknown(0));
    EXPECT_FALSE(is_unknown(1));
    EXPECT_FALSE(is_unknown(ClientBook::kMaxClosed));
}

}  // namespace
}  // namespace kernel_client_test
}  // namespace feroce::block
