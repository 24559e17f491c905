package clientmetadata

import (
	"sync"
	"time"
)

const (
	missLife  = 30 * time.Second
	maxMisses = 1024
)

// misses remember for a moment which documents could not be used. Their number is bounded: an address costs nothing to make up.
type misses struct {
	now func() time.Time

	mu    sync.Mutex
	known map[string]miss
}

type miss struct {
	err  error
	ends time.Time
}

// of returns why the document was no use a moment ago, or nil.
func (m *misses) of(address string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if found, ok := m.known[address]; ok && m.now().Before(found.ends) {
		return found.err
	}
	return nil
}

func (m *misses) note(address string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil || len(m.known) >= maxMisses { // to forget them all is to read a few once more
		m.known = map[string]miss{}
	}
	m.known[address] = miss{err, m.now().Add(missLife)}
}
