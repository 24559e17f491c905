package grant

import (
	"fmt"
	"time"
)

// An Ending describes the request that ended a grant by presenting a used code or refresh token again. It distinguishes
// a probable theft from a lost response.
type Ending struct {
	SuccessorUsed bool   `json:"successor_used"` // the token that replaced the presented one had been used to refresh
	Seconds       int64  `json:"seconds"`        // since that use, or since the successor was issued
	Network       string `json:"network,omitempty"`
	UserAgent     string `json:"user_agent,omitempty"`
}

// retryWithin is the time within which a client repeats a request whose response was lost.
const retryWithin = 10 * time.Minute

// LikelyRetry reports whether the request was probably repeated after a lost response, and is no theft.
func (e Ending) LikelyRetry() bool {
	return !e.SuccessorUsed && time.Duration(e.Seconds)*time.Second <= retryWithin
}

// Words describes the request to people: its probable cause, and where it came from.
func (e Ending) Words() string {
	ago := duration(time.Duration(e.Seconds) * time.Second)
	var words string
	switch {
	case e.LikelyRetry():
		words = "It may be a lost response rather than theft: the replacement, issued " + ago +
			" before, had not been used."
	case e.SuccessorUsed:
		words = "It looks like theft: the replacement had already been used " + ago + " before."
	default:
		words = "It may be theft or an old backup: the replacement, issued " + ago + " before, had not been used."
	}
	if e.Network == "" {
		return words
	}
	words += " The request came from " + e.Network
	if e.UserAgent != "" {
		words += " (“" + e.UserAgent + "”)"
	}
	return words + "."
}

func duration(d time.Duration) string {
	for _, unit := range []struct {
		name string
		size time.Duration
	}{{"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute}} {
		if n := int64(d / unit.size); n == 1 {
			return "1 " + unit.name
		} else if n > 1 {
			return fmt.Sprintf("%d %ss", n, unit.name)
		}
	}
	if d < 2*time.Second {
		return "1 second"
	}
	return fmt.Sprintf("%d seconds", d/time.Second)
}

// ending returns the Ending for a presented code or refresh token that turns out to be used.
func (s Sender) ending(snapshot Snapshot, presented Token) *Ending {
	g, e := snapshot.Grant, &Ending{Network: s.Network, UserAgent: s.UserAgent}
	if g.Generation <= presented.Generation {
		return e // the successor was issued during this request
	}
	e.SuccessorUsed = g.Generation > presented.Generation+1
	if g.Renewed != nil {
		e.Seconds = max(0, int64(snapshot.Now.Sub(*g.Renewed)/time.Second))
	}
	return e
}
