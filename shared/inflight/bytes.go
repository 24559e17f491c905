package inflight

import "sync"

// Bytes bounds the response bytes in memory, in total and per key. It is safe for concurrent use.
type Bytes[Key comparable] struct {
	total int // of all keys
	share int // of one

	mu    sync.Mutex
	used  int
	byKey map[Key]int
}

// NewBytes makes a Bytes with these bounds.
func NewBytes[Key comparable](total, share int) *Bytes[Key] {
	return &Bytes[Key]{total: total, share: share, byKey: map[Key]int{}}
}

// Hold returns a Hold of one request of the key. It holds nothing yet.
func (b *Bytes[Key]) Hold(key Key) *Hold[Key] { return &Hold[Key]{bytes: b, key: key} }

// A Hold holds the bytes of one request. It is safe for concurrent use.
type Hold[Key comparable] struct {
	bytes *Bytes[Key]
	key   Key

	held     int  // guarded by bytes.mu
	released bool // guarded by bytes.mu
}

// Take takes n more bytes and reports whether there was room. After Release it always returns false, so that
// work that outlives its request takes nothing.
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

// Release returns the bytes. Take fails afterwards.
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
