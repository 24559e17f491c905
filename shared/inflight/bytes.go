package inflight

import "sync"

// Bytes bounds how many bytes of answers are held in memory, in all and by key. It is safe for concurrent use.
type Bytes[Key comparable] struct {
	total int // of all keys
	share int // of one

	mu    sync.Mutex
	used  int
	byKey map[Key]int
}

// NewBytes makes a Bytes with the bounds.
func NewBytes[Key comparable](total, share int) *Bytes[Key] {
	return &Bytes[Key]{total: total, share: share, byKey: map[Key]int{}}
}

// Hold returns what one request of the key holds, which is nothing yet.
func (b *Bytes[Key]) Hold(key Key) *Hold[Key] { return &Hold[Key]{bytes: b, key: key} }

// A Hold is what one request holds. It is safe for concurrent use.
type Hold[Key comparable] struct {
	bytes *Bytes[Key]
	key   Key

	held     int  // guarded by bytes.mu
	released bool // guarded by bytes.mu
}

// Take takes n bytes more, and reports whether there was room for them. After Release there is none: work that outlives
// its request takes nothing.
func (h *Hold[Key]) Take(n int) bool {
	b := h.bytes
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.released || b.used+n > b.total || b.byKey[h.key]+n > b.share {
		return false
	}
	b.used += n
	b.byKey[h.key] += n
	h.held += n
	return true
}

// Release gives back what was taken, for good.
func (h *Hold[Key]) Release() {
	b := h.bytes
	b.mu.Lock()
	defer b.mu.Unlock()
	h.released = true
	if h.held == 0 {
		return
	}
	b.used -= h.held
	if b.byKey[h.key] -= h.held; b.byKey[h.key] == 0 {
		delete(b.byKey, h.key)
	}
	h.held = 0
}
