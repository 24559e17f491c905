package ui

import "net/http"

// EmailChange is the page of a link that confirms or stops a change of an e-mail address.
type EmailChange struct {
	Frame
	Token     string // the secret of the link
	Email     string // the new address
	ToNew     bool   // the link was sent to the new address
	Confirmed bool   // with this link
}

// Template implements View.
func (*EmailChange) Template() string { return "emailchange" }

// Unproven returns the page for a user whose address was never proven to be the user's (useraccount.Proof). text says
// what the user cannot do. mails tells whether the deployment sends mail.
func Unproven(text string, mails bool) *Message {
	page := &Message{
		Status:  http.StatusForbidden,
		Heading: "Confirm your e-mail address first",
		Text:    "The e-mail address of your account has never been confirmed. " + text,
		Next: "Set a new password with a link that we send to this address. This confirms it, and ends your other " +
			"sign-ins, passkeys, tokens and connections. Then try again.",
		Links: []Link{{Href: "/login/forgotten", Text: "Set a new password"}},
	}
	if !mails {
		page.Next = "Ask the person who runs this service to confirm your address. Then try again."
		page.Links = []Link{{Href: "/settings/user", Text: "Go to your settings"}}
	}
	return page
}

// Takeover is the page that says what a sign-in at the identity provider ends, because the address of the account was
// never confirmed.
type Takeover struct {
	Frame
	Key    string
	Email  string
	Return string // local path that follows
}

// Template implements View.
func (*Takeover) Template() string { return "takeover" }

// LeadsTo implements View.
func (t *Takeover) LeadsTo() string { return t.Return }
