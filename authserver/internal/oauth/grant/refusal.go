package grant

import (
	"fmt"
	"time"
)

// A Refusal is a no that the caller caused. Target tells invalid_target (RFC 8707, section 2) from invalid_grant
// (RFC 6749, section 5.2). The message is the error_description: plain words, no input echoed.
type Refusal struct {
	Target  bool
	Message string
	Ended   Reason // why the grant is revoked, where the request itself has revoked it or met the revocation first
}

func (r *Refusal) Error() string { return r.Message }

func refuse(message string) error { return &Refusal{Message: message} }

const (
	unknownCode  = "The authorization code is not known, or was not made for this client."
	unknownToken = "The refresh token is not known, or was not made for this client."
	over         = "The time that the user consented to is over. Send the user to the consent page again."
	notMember    = "The user is no longer a member of the workspace."
	llmOff       = "The workspace has switched its LLM integration off."
	nothingLeft  = "The user no longer holds any of the permissions that were granted."
	disabled     = "The user's account is disabled."
	wrongTarget  = "The resource is not the one that the user consented to."
)

var reasonWords = map[Reason]string{
	Replayed:       "The grant was revoked because a superseded refresh token was presented",
	CodeReused:     "The grant was revoked because its authorization code was presented again",
	CodeGuessed:    "The authorization code was revoked after five attempts that did not match it",
	ByUser:         "The user disconnected this application",
	ByClient:       "The application revoked this grant",
	ByAdmin:        "An administrator revoked this grant",
	MembershipOver: "The user's membership of the workspace has ended",
	ClientDeleted:  "The application was deleted",
	ByPolicy:       "The workspace's connector policy ended this connection",
}

// Words says in plain words why a grant ended, and when.
func (r Reason) Words(at *time.Time) string {
	words, ok := reasonWords[r]
	if !ok {
		words = "The grant was revoked"
	}
	if at == nil {
		return words + "."
	}
	return fmt.Sprintf("%s on %s.", words, at.UTC().Format("2 January 2006 at 15:04:05 UTC"))
}

// standingRefusal says why the grant's user may not act through it at this moment, or nil (contract, section 3).
func (f Snapshot) standingRefusal() error {
	g := f.Grant
	switch {
	case g.Ends.Sub(f.Now) < time.Second: // an answer tells its times in whole seconds, and none of them is 0
		return refuse(over)
	case f.UserDisabled:
		return refuse(disabled)
	case !f.Member:
		return refuse(notMember)
	case g.Kind.Traits().NeedsLLM && !f.LLM:
		return refuse(llmOff)
	case len(g.Permissions.Intersect(f.Held)) == 0:
		return refuse(nothingLeft)
	}
	return nil
}
