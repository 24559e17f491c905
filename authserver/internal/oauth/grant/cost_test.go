package grant

import (
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// garbage has the length and the prefix of a token.
var garbage = string(Refresh) + strings.Repeat("A", 136)

// A token that this server did not issue causes no slow hash and no store access.
func TestReadToken_GarbageCostsMicroseconds(t *testing.T) {
	t.Parallel()
	c := newCodec(t)
	forged, _ := newCodec(t).New(Refresh, newKey(), 1)
	for name, text := range map[string]string{"garbage": garbage, "another server's": forged.Reveal()} {
		testkit.Quick(t, 100*time.Microsecond, func() {
			if _, err := c.Read(Refresh, text); err == nil {
				t.Fatalf("%s: accepted", name)
			}
		})
	}
}

func BenchmarkGarbageToken(b *testing.B) {
	c := newCodec(b)
	for b.Loop() {
		_, _ = c.Read(Refresh, garbage)
	}
}

func BenchmarkForgedToken(b *testing.B) {
	c := newCodec(b)
	forged, _ := newCodec(b).New(Refresh, newKey(), 1)
	for b.Loop() {
		_, _ = c.Read(Refresh, forged.Reveal())
	}
}
