package grant

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// A Refusal is a refusal that the client caused. Code is its error code (RFC 6749, section 5.2; RFC 8707, section 2),
// or "" for invalid_grant. The message is the error_description: plain words, without input.
type Refusal struct {
	Code    string
	Message string
	Ended   Reason // why the grant is revoked, if this request revoked it or found that after its snapshot
	Block   Block  // why the client may not act, if the request was refused for that
}

func (r *Refusal) Error() string { return r.Message }

func refuse(message string) error { return &Refusal{Message: message} }

const (
	unknownCode  = "The authorization code is unknown or was issued to another client."
	unknownToken = "The refresh token is unknown or was issued to another client."
	over         = "The access that the user approved has expired. Send the user to the consent page again."
	wrongTarget  = "The resource is not the one that the user approved."
	widerScope   = "scope must contain only permissions that the user approved. Leave it out to get all of them."

	expiredCode = "The authorization code has expired. It is valid for 60 seconds. Send the user to the consent page " +
		"again."
	missingVerifier = "code_verifier is required, because the authorization request had a code_challenge."
)

// codeRefusals are the messages for results of the script that redeems a code.
var codeRefusals = map[ScriptResult]string{
	WrongRedirectURI: "redirect_uri must exactly match the redirect_uri of the authorization request.",
	WrongVerifier:    "code_verifier does not match the code_challenge of the authorization request.",
	Expired:          expiredCode,
	Missing:          expiredCode,
	Replaced:         "The authorization code was replaced by a newer one.",
}

// reasonWords are for the client. The words for people are in the audit log, apps.html and the languages of mails.
var reasonWords = map[Reason]string{
	Replayed:       "The grant was revoked because a superseded refresh token was presented",
	CodeReused:     "The grant was revoked because its authorization code was presented again",
	CodeGuessed:    "The authorization code was revoked after five failed attempts to use it",
	ByUser:         "The user disconnected this application",
	ByClient:       "The application revoked this grant",
	ByAdmin:        "An administrator revoked this grant",
	MembershipOver: "The user's membership of the workspace has ended",
	ClientDeleted:  "The application was deleted",
	ByPolicy:       "The workspace's connector policy ended this connection",
	AddressProven:  "The user confirmed the address of the account, which ended its earlier connections",
}

// Reasons returns the reasons, in no order.
func Reasons() []Reason { return slices.Collect(maps.Keys(reasonWords)) }

// Words tells the client why and when a grant ended.
func (r Reason) Words(at *time.Time) string {
	words, ok := reasonWords[r]
	if !ok {
		words = "The grant was revoked"
	}
	if at == nil {
		return words + "."
	}
	return fmt.Sprintf("%s on %s.", words, at.UTC().Format(endFormat))
}

const endFormat = "2 January 2006 at 15:04:05 UTC"

// disconnected explains to people why a grant ended. %s says which application was disconnected, and when.
var disconnected = map[Reason]string{
	Replayed:       "%s because an old access key was used again.",
	CodeReused:     "%s because a one-time sign-in code was used again.",
	CodeGuessed:    "%s after five failed attempts to use a one-time sign-in code.",
	ByUser:         "%s by the person who had connected it.",
	ByClient:       "%s because the app ended its own access.",
	ByAdmin:        "%s by an administrator.",
	MembershipOver: "%s because the person's membership of the workspace ended.",
	ClientDeleted:  "%s because the app was deleted.",
	ByPolicy:       "%s because the assistant rules no longer allow it.",
	AddressProven:  "%s because the address of the account was confirmed, which ended its earlier connections.",
}

// Explain describes to people why and when a grant of an application ended. reuse may be nil.
func (r Reason) Explain(application string, at *time.Time, reuse *Reuse) string {
	words, suspicion := r.Ended(application, at), r.Suspicion(reuse)
	if suspicion != "" {
		words += " " + suspicion
	}
	if suspicion != "" && reuse != nil && reuse.Network != "" {
		words += " The request came from " + reuse.Origin() + "."
	}
	return words
}

// Ended says why and when a grant of an application ended, in one sentence.
func (r Reason) Ended(application string, at *time.Time) string {
	words, ok := disconnected[r]
	if !ok {
		words = "%s."
	}
	event := application + " was disconnected"
	if at != nil {
		event += " on " + at.UTC().Format(endFormat)
	}
	return fmt.Sprintf(words, event)
}

// Suspicion describes whether the request that ended a grant looks like theft, but not where it came from. It returns
// "" unless a used code or refresh token was presented.
func (r Reason) Suspicion(reuse *Reuse) string {
	switch {
	case r != Replayed && r != CodeReused:
		return ""
	case reuse == nil:
		return "It may have been copied."
	}
	return reuse.cause()
}

// A Block is why the client of an active grant may not act at this moment. It goes when its cause goes, except
// TimeOver.
type Block string

// The blocks, in the order in which they are checked (contract, section 3).
const (
	NotBlocked      Block = ""
	TimeOver        Block = "time_over"
	UserDisabled    Block = "user_disabled"
	NotMember       Block = "membership_ended"
	LLMOff          Block = "llm_integration_off"
	PermissionsLost Block = "permissions_lost"
)

var blockWords = map[Block]string{
	TimeOver:        over,
	UserDisabled:    "The user's account is disabled.",
	NotMember:       "The user is no longer a member of the workspace.",
	LLMOff:          "The workspace has switched its LLM integration off.",
	PermissionsLost: "The user no longer has any of the granted permissions.",
}

// Blocked returns why the client may not act through the grant now.
func (s Snapshot) Blocked() Block {
	g := s.Grant
	switch {
	case g.Ends.Sub(s.Now) < time.Second: // a response gives times in whole seconds, and none may be 0
		return TimeOver
	case s.UserDisabled:
		return UserDisabled
	case !s.Member:
		return NotMember
	case !g.Kind.AllowedBy(s.LLMEnabled):
		return LLMOff
	case len(g.Permissions.Intersect(s.Held)) == 0:
		return PermissionsLost
	}
	return NotBlocked
}

// standingRefusal returns the refusal for Blocked, or nil.
func (s Snapshot) standingRefusal() error {
	block := s.Blocked()
	if block == NotBlocked {
		return nil
	}
	return &Refusal{Message: blockWords[block], Block: block}
}

// A Reuse describes the request that ended a grant by presenting a used code or refresh token again. It distinguishes a
// probable theft from a lost response.
type Reuse struct {
	SuccessorUsed bool   `json:"successor_used"` // the token that replaced the presented one had been used to refresh
	Seconds       int64  `json:"seconds"`        // since that use, or since the successor was issued
	Network       string `json:"network,omitempty"`
	UserAgent     string `json:"user_agent,omitempty"`
}

// retryWithin is the time within which a client repeats a request whose response was lost.
const retryWithin = 10 * time.Minute

// LikelyRetry reports whether the request was probably repeated after a lost response, and is no theft.
func (r Reuse) LikelyRetry() bool {
	return !r.SuccessorUsed && time.Duration(r.Seconds)*time.Second <= retryWithin
}

// cause describes the probable cause of the request to people.
func (r Reuse) cause() string {
	ago := duration(time.Duration(r.Seconds) * time.Second)
	switch {
	case r.LikelyRetry():
		return "This was probably a network fault and not theft: the key that replaced it, " + ago +
			" earlier, had not been used."
	case r.SuccessorUsed:
		return "This looks like theft: the key that replaced it had already been used, " + ago + " earlier."
	}
	return "This may be theft or an old backup: the key that replaced it, " + ago + " earlier, had not been used."
}

// Origin says where the request came from, or "".
func (r Reuse) Origin() string {
	if r.Network == "" || r.UserAgent == "" {
		return r.Network
	}
	return r.Network + " (“" + r.UserAgent + "”)"
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

// reuse returns the Reuse for a request whose code or refresh token turns out to be used.
func (r Request) reuse(snapshot Snapshot) *Reuse {
	g, reuse := snapshot.Grant, &Reuse{Network: r.Sender.Network, UserAgent: r.Sender.UserAgent}
	if g.Generation <= r.Token.Generation {
		return reuse // the successor was issued during this request
	}
	reuse.SuccessorUsed = g.Generation > r.Token.Generation+1
	if g.Renewed != nil {
		reuse.Seconds = max(0, int64(snapshot.Now.Sub(*g.Renewed)/time.Second))
	}
	return reuse
}
