package accesstoken

import (
	"crypto/sha256"
	"sync"
	"time"
)

// verified caches the claims of tokens with a valid signature, because checking an ES256 signature costs more
// than everything else in a request. It does not cache what a token may do, which is read from Postgres each
// time. It belongs to one set of keys, so that removing a key also drops its tokens. The zero value is ready
// to use.
type verified struct {
	mu     sync.Mutex
	recent map[[sha256.Size]byte]Claims
	older  map[[sha256.Size]byte]Claims
}

// generationSize bounds each of the two generations. When the recent generation is full it becomes the older
// one, and the previous older one is dropped.
const generationSize = 4096

// find returns the claims of a token that was added and has not expired at now.
func (v *verified) find(text string, now time.Time) (Claims, bool) {
	key := sha256.Sum256([]byte(text))
	v.mu.Lock()
	defer v.mu.Unlock()
	claims, found := v.recent[key]
	if !found {
		if claims, found = v.older[key]; found {
			v.put(key, claims)
		}
	}
	return claims, found && now.Before(claims.Expires)
}

func (v *verified) add(text string, claims Claims) {
	key := sha256.Sum256([]byte(text))
	v.mu.Lock()
	defer v.mu.Unlock()
	v.put(key, claims)
}

func (v *verified) put(key [sha256.Size]byte, claims Claims) {
	if v.recent == nil || len(v.recent) >= generationSize {
		v.recent, v.older = map[[sha256.Size]byte]Claims{}, v.recent
	}
	v.recent[key] = claims
}
