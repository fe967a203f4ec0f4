// EventQueue: events that a program fetches through a descriptor, as of a completion channel or an
// asynchronous event queue. An event is about an object, whose account holds the memory for it, so
// that telling of it needs none; an event that is told again before it was fetched is counted, and
// comes after those told before it: the last of each kind keep their order.
// Destroying the object drops its events that are not yet fetched and waits until those that are
// have been acknowledged. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>

#include "base/assert.hpp"
#include "base/result.hpp"
#include "process/event_counter.hpp"
#include "process/undisturbed.hpp"
#include "process/waiting.hpp"

namespace feroce::process {

// `Same` compares two events of one object.
template <class Event, class Same = std::equal_to<Event>>
class EventQueue {
public:
    class Account;

private:
    struct Node {
        Event event{};
        Account* account = nullptr;
        Node* next = nullptr;     // The one told of after it.
        std::uint32_t count = 0;  // How often it was told and not fetched; in the queue if not 0.
    };

public:
    // Of one object: how many events were fetched and how many of these acknowledged. Guarded by
    // the queue's lock.
    class Account {
    public:
        Account(const Account&) = delete;
        Account& operator=(const Account&) = delete;

    protected:
        explicit Account(std::span<Node> nodes) : nodes_(nodes) {}
        ~Account() = default;

    private:
        friend EventQueue;
        std::span<Node> nodes_;
        std::uint32_t delivered_ = 0;
        std::uint32_t acknowledged_ = 0;
    };
    // Of an object that has so many kinds of events.
    template <std::size_t kKinds>
    class AccountFor : public Account {
    public:
        AccountFor() : Account(own_) {}

    private:
        std::array<Node, kKinds> own_;
    };

    Result<void> open() { return counter_.open(); }
    int fd() const { return counter_.fd(); }
    // No event is posted from here on; the descriptors go.
    void close() { counter_.close(); }

    // `account` is that of the event's object; null if it has none.
    void post(const Event& event, Account* account) {
        const std::lock_guard lock(mutex_);
        Account& whose = account == nullptr ? general_ : *account;
        Node& node = node_for(event, whose);
        if (node.count++ > 0) unlink(*link_of(node));
        node.event = event;
        node.account = &whose;
        node.next = nullptr;
        *end_ = &node;
        end_ = &node.next;
        counter_.post();
    }

    // Waits for the oldest event on `fd`, which the program may have replaced. False with errno set
    // if there is none; a thread may be cancelled or leave by siglongjmp(): see fetch_event().
    bool take(int fd, Event& out) {
        return fetch_event(counter_, fd, [this, &out](std::uint64_t count) {
            const std::lock_guard lock(mutex_);
            if (first_ == nullptr) {
                counter_.was_read(count);
                return false;
            }
            out = first_->event;
            ++first_->account->delivered_;
            if (--first_->count == 0) unlink(first_);
            counter_.taken(count, first_ != nullptr);
            return true;
        });
    }

    void acknowledge(Account& account, std::uint32_t count) {
        const std::lock_guard lock(mutex_);
        account.acknowledged_ += count;
        acknowledged_.notify_all();
    }

    // Before the object of the account is destroyed. No more events about it may come. A signal
    // handler may leave the wait by siglongjmp(): the caller must bear to begin again.
    void settle(Undisturbed& call, Account& account) {
        std::unique_lock lock(mutex_);
        for (Node** link = &first_; *link != nullptr;) {
            Node& node = **link;
            if (node.account != &account) {
                link = &node.next;
                continue;
            }
            node.count = 0;
            unlink(*link);
        }
        counter_.dropped(first_ != nullptr);
        wait_until(call, acknowledged_, lock,
                   [&account] { return account.acknowledged_ >= account.delivered_; });
    }

private:
    static constexpr std::size_t kGeneralKinds = 8;

    static Node& node_for(const Event& event, Account& account) {
        Node* unused = nullptr;
        for (Node& node : account.nodes_) {
            if (node.count > 0 && Same()(node.event, event)) return node;
            if (node.count == 0) unused = &node;
        }
        ASSERT(unused != nullptr);  // The object has as many nodes as kinds of events.
        return *unused;
    }
    Node** link_of(const Node& node) {
        Node** link = &first_;
        while (*link != &node) link = &(*link)->next;
        return link;
    }
    void unlink(Node*& link) {
        Node& node = *link;
        link = node.next;
        if (end_ == &node.next) end_ = &link;
    }

    std::mutex mutex_;  // Guards the list and the accounts of the objects.
    Change acknowledged_;
    AccountFor<kGeneralKinds> general_;  // Of what is about no object. Nobody acknowledges it.
    Node* first_ = nullptr;              // Oldest first.
    Node** end_ = &first_;               // Where the next one goes.
    EventCounter counter_;
};

}  // namespace feroce::process
