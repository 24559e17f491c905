package clientmetadata

import (
	"sync"
	"time"
)

const (
	failureLife = 30 * time.Second
	maxFailures = 1024
)

// failureCache remember for a moment which documents could not be used. Their number is bounded: an address costs
// nothing to make up.
type failureCache struct {
	now func() time.Time

	mu    sync.Mutex
	known map[string]failure
}

type failure struct {
	err  error
	ends time.Time
}

// find returns why the document was no use a moment ago, or nil.
func (m *failureCache) find(address string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if found, ok := m.known[address]; ok && m.now().Before(found.ends) {
		return found.err
	}
	return nil
}

func (m *failureCache) add(address string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil || len(m.known) >= maxFailures { // to forget them all is to read a few once more
		m.known = map[string]failure{}
	}
	m.known[address] = failure{err, m.now().Add(failureLife)}
}
