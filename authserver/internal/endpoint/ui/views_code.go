package ui

// SignInCode is the page on which a user with an authenticator app enters a code after the password.
type SignInCode struct {
	Frame
	Ticket   string // the checked password, sealed
	Return   string // local path that follows
	Email    string // of the account
	CodeNote string // the error of this field
}

// Template implements View.
func (*SignInCode) Template() string { return "code" }

// LeadsTo implements View.
func (c *SignInCode) LeadsTo() string { return c.Return }
