package ui

import "time"

// Forgotten is the page on which a person requests a link to set a new password.
type Forgotten struct {
	Frame
	Mails     bool // the deployment sends mail
	Requested bool // the request was accepted
	Email     string
	EmailNote string // the error of this field
}

// Template implements View.
func (*Forgotten) Template() string { return "forgotten" }

// NewPassword is the page on which a person sets a password with a link.
type NewPassword struct {
	Frame
	Email        string // of the account
	Token        string // the secret of the link
	Others       bool   // the link can remove passkeys or linked accounts
	Stay         bool   // the link removes no passkey, because a workspace requires a second factor
	RemoveOthers bool   // the choice about them
	TakesOver    bool   // the address was never confirmed: all that the account has ends
	Credentials  []EndingCredential
	More         int    // tokens and connections that end and are not listed
	PasswordNote string // the error of this field
}

// Template implements View.
func (*NewPassword) Template() string { return "newpassword" }

// An EndingCredential is a personal access token or a connection that ends with the new password.
type EndingCredential struct {
	ID        string
	Kind      string // in words
	Name      string
	Workspace string
	LastUsed  *time.Time
	Keep      bool // the user does not want to end it
}
