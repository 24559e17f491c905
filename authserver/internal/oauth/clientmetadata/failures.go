package clientmetadata

import (
	"sync"
	"time"
)

const (
	failureLife = 30 * time.Second
	maxFailures = 1024
)

// failureCache remembers briefly which documents could not be used. It is bounded, because anyone can invent URLs.
type failureCache struct {
	now func() time.Time

	mu    sync.Mutex
	known map[string]failure
}

type failure struct {
	err  error
	ends time.Time
}

// find returns why the document could not be used recently, or nil.
func (c *failureCache) find(address string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found, ok := c.known[address]; ok && c.now().Before(found.ends) {
		return found.err
	}
	return nil
}

func (c *failureCache) add(address string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) >= maxFailures { // clearing all costs a few more fetches
		c.known = map[string]failure{}
	}
	c.known[address] = failure{err, c.now().Add(failureLife)}
}
