package accesstoken

import (
	"crypto/sha256"
	"sync"
	"time"
)

// verified remembers what tokens say whose signature was found good, because checking an ES256 signature costs more
// than all else that a request does here. It remembers nothing of what a token may do: that is asked of Postgres each
// time. It belongs to one set of keys, so a key that was removed takes its tokens along. The zero value is ready.
type verified struct {
	mu     sync.Mutex
	recent map[[sha256.Size]byte]Claims
	older  map[[sha256.Size]byte]Claims
}

// generationSize bounds each of the two generations; a full one becomes the older, and the older is dropped.
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
