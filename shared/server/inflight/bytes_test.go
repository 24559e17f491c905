package inflight

import "testing"

func TestBytes_BoundsTotalAndPerKey(t *testing.T) {
	b := NewBytes[string](100, 60)
	a, again, other := b.Hold("a"), b.Hold("a"), b.Hold("b")
	for _, c := range []struct {
		by   *Hold[string]
		n    int
		want bool
	}{
		{a, 40, true},
		{again, 21, false},
		{again, 20, true},
		{a, 1, false},
		{other, 41, false},
		{other, 40, true},
		{b.Hold("c"), 1, false},
	} {
		if got := c.by.Take(c.n); got != c.want {
			t.Errorf("%d bytes for %s: %t", c.n, c.by.key, got)
		}
	}
	a.Release()
	a.Release()
	if !again.Take(40) || again.Take(1) {
		t.Error("released bytes are not available, or counted twice")
	}
	again.Release()
	other.Release()
	if b.used != 0 || len(b.byKey) != 0 {
		t.Errorf("%d bytes of %v are still in use", b.used, b.byKey)
	}
}

func TestBytes_TakeAfterReleaseFails(t *testing.T) {
	b := NewBytes[string](100, 60)
	hold := b.Hold("a")
	if !hold.Take(10) {
		t.Fatal("Take(10) of 60 bytes failed")
	}
	hold.Release()
	if hold.Take(30) {
		t.Error("Take succeeded after Release")
	}
	if b.used != 0 || len(b.byKey) != 0 {
		t.Errorf("%d bytes of %v are still in use", b.used, b.byKey)
	}
}
