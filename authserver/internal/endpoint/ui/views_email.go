package ui

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
