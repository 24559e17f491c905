package ui

import "time"

// A ConnectorLog is one connector of a workspace, with its latest attempts to connect.
type ConnectorLog struct {
	ID, Name string
	Platform string
	Host     string // where its answers go, or whose document it is
	Deleted  bool
	Attempts []ConnectionAttempt
	More     string // path to the rest, or ""
}

// A ConnectionAttempt is one attempt to connect.
type ConnectionAttempt struct {
	ID        string
	At        time.Time
	Person    string // "" where nobody is known
	Steps     []Step
	Outcome   string // waiting, working, refused, denied, ended: the look
	Word      string // the same in words
	Reason    string
	RequestID string
}

// A Step is one of those that an attempt takes.
type Step struct {
	Name  string
	Taken bool
}
