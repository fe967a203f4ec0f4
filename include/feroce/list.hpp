// A doubly linked list through its elements: nothing is allocated, an element leaves by itself when
// it ends, and a list that ends leaves its elements linked nowhere.
#pragma once

#include <cstddef>

namespace feroce::rdma {

class ListNode {
public:
    ListNode() = default;
    ~ListNode() { unlink(); }
    ListNode(const ListNode&) = delete;
    ListNode& operator=(const ListNode&) = delete;

    bool linked() const { return next_ != this; }
    void unlink() {
        previous_->next_ = next_;
        next_->previous_ = previous_;
        next_ = previous_ = this;
    }

private:
    template <class T>
    friend class List;

    void insert_before(ListNode& place) {
        unlink();
        next_ = &place;
        previous_ = place.previous_;
        previous_->next_ = this;
        place.previous_ = this;
    }

    ListNode* next_ = this;
    ListNode* previous_ = this;
};

// T derives from ListNode.
template <class T>
class List {
public:
    List() = default;
    ~List() { clear(); }
    List(const List&) = delete;
    List& operator=(const List&) = delete;

    bool empty() const { return !head_.linked(); }
    void push_back(T& element) { static_cast<ListNode&>(element).insert_before(head_); }
    void push_front(T& element) { static_cast<ListNode&>(element).insert_before(*head_.next_); }
    T& front() { return static_cast<T&>(*head_.next_); }  // Not of an empty list.
    // Null if there is none.
    T* pop_front() { return taken(head_.next_); }
    T* pop_back() { return taken(head_.previous_); }
    void clear() {
        while (pop_front() != nullptr) continue;
    }
    // Appends all of the other, which is empty then.
    void splice(List& other) {
        while (T* element = other.pop_front()) push_back(*element);
    }

private:
    T* taken(ListNode* node) {
        if (node == &head_) return nullptr;
        node->unlink();
        return static_cast<T*>(node);
    }

    ListNode head_;
};

// One that knows how many it has. Its elements leave through it only, and before they end.
template <class T>
class CountedList {
public:
    bool empty() const { return list_.empty(); }
    std::size_t size() const { return size_; }
    T& front() { return list_.front(); }
    void push_back(T& element) {
        list_.push_back(element);
        ++size_;
    }
    void remove(T& element) {
        static_cast<ListNode&>(element).unlink();
        --size_;
    }
    T* pop_front() { return counted(list_.pop_front()); }
    T* pop_back() { return counted(list_.pop_back()); }

private:
    T* counted(T* element) {
        if (element != nullptr) --size_;
        return element;
    }

    List<T> list_;
    std::size_t size_ = 0;
};

}  // namespace feroce::rdma
