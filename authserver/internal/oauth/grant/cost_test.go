package grant

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// garbage is as long as a token, and begins like one.
var garbage = string(Refresh) + strings.Repeat("A", 100)

// No slow hash and no store is behind a token that we did not mint. The fastest of many is what it costs; the rest is
// the machine.
func TestAGarbageTokenCostsMicroseconds(t *testing.T) {
	m := newMint(t)
	forged, _ := newMint(t).New(Refresh, uuid.New(), 1)
	for name, text := range map[string]string{"garbage": garbage, "another server's": forged.Reveal()} {
		fastest := time.Hour
		for range 1000 {
			began := time.Now()
			_, err := m.Read(Refresh, text)
			fastest = min(fastest, time.Since(began))
			if err == nil {
				t.Fatalf("%s: believed", name)
			}
		}
		if fastest > 100*time.Microsecond {
			t.Errorf("%s: %s", name, fastest)
		}
	}
}

func BenchmarkAGarbageToken(b *testing.B) {
	m := newMint(b)
	for b.Loop() {
		_, _ = m.Read(Refresh, garbage)
	}
}

func BenchmarkAForgedToken(b *testing.B) {
	m := newMint(b)
	forged, _ := newMint(b).New(Refresh, uuid.New(), 1)
	for b.Loop() {
		_, _ = m.Read(Refresh, forged.Reveal())
	}
}
