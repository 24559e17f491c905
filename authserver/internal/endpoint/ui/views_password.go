package ui

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
	PasswordNote string // the error of this field
}

// Template implements View.
func (*NewPassword) Template() string { return "newpassword" }
