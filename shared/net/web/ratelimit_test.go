package web

import (
	"net/http"
	"testing"
	"time"
)

func TestSetRateLimited_WritesEachLimit(t *testing.T) {
	h := http.Header{}
	SetRateLimited(h, 1500*time.Millisecond,
		RateLimit{
			Name:      "sign-in",
			Quota:     10,
			Window:    15 * time.Minute,
			Remaining: -3,
			Reset:     89*time.Second + time.Millisecond,
		},
		RateLimit{
			Name:      "in-flight",
			Quota:     64,
			Unit:      UnitConcurrentRequests,
			Remaining: 7,
		},
	)
	for name, want := range map[string]string{
		"RateLimit-Policy": `"sign-in";q=10;w=900, "in-flight";q=64;qu="concurrent-requests"`,
		"RateLimit":        `"sign-in";r=0;t=90, "in-flight";r=7`,
		"Retry-After":      "2",
	} {
		if got := h.Values(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestSetRateLimits_EscapesNames(t *testing.T) {
	h := http.Header{}
	SetRateLimits(h)
	if len(h) != 0 {
		t.Errorf("headers %v without a limit", h)
	}
	SetRateLimits(h, RateLimit{Name: "a\"b\\c\nd\u00e9", Quota: 1, Unit: UnitRequests})
	if got, want := h.Get("RateLimit-Policy"), `"a\"b\\cd";q=1`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestSetRetryAfter_IsAtLeastOneSecond(t *testing.T) {
	for wait, want := range map[time.Duration]string{
		0:                        "1",
		-time.Second:             "1",
		time.Millisecond:         "1",
		time.Second:              "1",
		61001 * time.Millisecond: "62",
	} {
		h := http.Header{}
		SetRetryAfter(h, wait)
		if got := h.Get("Retry-After"); got != want {
			t.Errorf("%v: %q, want %q", wait, got, want)
		}
	}
}
