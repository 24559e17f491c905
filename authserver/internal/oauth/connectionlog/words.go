package connectionlog

import (
	"cmp"
	"strings"
)

// Reasons of grants whose codes were not exchanged.
const (
	finishes      = "The person approved. The assistant has one minute to finish the sign-in."
	neverFinished = "The person approved, but the assistant never finished the sign-in."
)

// words are recorded reasons, or their beginnings, with their words for people who are not technical.
var words = []struct{ recorded, shown string }{
	{finishes, finishes},
	{neverFinished, neverFinished},
	{"The consent page was shown.", "The person has not answered the approval page yet."},
	{"The user did not approve the request.", "The person did not approve it."},
	{"The signed-in user is not a member", "The person is not a member of the workspace."},
	{"The workspace requires a second factor", "The person has to sign in with two-step sign-in first."},
	{"The workspace has switched its LLM integration off.", "AI assistants are switched off in this workspace."},
	{"The connector policy does not allow this platform.", "The assistant rules do not allow this assistant."},
	{"The connector policy allows none", "The assistant rules allow none of the permissions that it asked for."},
	{"The access that the user approved has expired.", "The access that the person approved has expired."},
	{"The user's account is disabled.", "The account of the person is disabled."},
	{"The user is no longer a member", "The person is no longer a member of the workspace."},
	{"The user no longer has any", "The person no longer has any of the permissions that they gave it."},
	{"The grant was revoked", "Its access had already ended."},
	{"The authorization code was revoked", "Its access had already ended."},
	{"The user disconnected this application", "The person had disconnected it."},
	{"The application revoked this grant", "It had ended its own access."},
	{"An administrator revoked this grant", "An administrator had disconnected it."},
	{"The user's membership of the workspace has ended", "The person is no longer a member of the workspace."},
	{"The application was deleted", "The app was deleted."},
	{"The workspace's connector policy ended", "The assistant rules no longer allow it."},
	{"The user confirmed the address", "The address of the account was confirmed, which ended its access."},
	{"The authorization code has expired.", "The assistant took longer than a minute to finish the sign-in."},
}

const (
	lacks  = "The user does not have the requested permissions: "
	person = "The person does not have what it asked for: "
)

// Words returns the reason of a refused request in words for people who are not technical. A reason that only a
// developer understands becomes a sentence that says so much.
func Words(reason string) string {
	if titles, found := strings.CutPrefix(reason, lacks); found {
		return person + titles
	}
	for _, one := range words {
		if strings.HasPrefix(reason, one.recorded) {
			return one.shown
		}
	}
	return "It sent a request that this service does not accept."
}

// Words returns the reason in words for people who are not technical, or "".
func (a Attempt) Words() string {
	if a.shown != "" || a.Reason == "" || a.Outcome == Ended {
		return cmp.Or(a.shown, a.Reason)
	}
	return Words(a.Reason)
}
