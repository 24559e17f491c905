package ui

import "time"

// A ConnectorLog is one connector of a workspace, with its latest attempts to connect.
type ConnectorLog struct {
	ID, Name string
	Platform string
	Host     string // host of its callback or its metadata document
	Deleted  bool
	Attempts []ConnectionAttempt
	More     string // path to the other attempts, or ""
}

// A ConnectionAttempt is one attempt to connect.
type ConnectionAttempt struct {
	ID        string
	At        time.Time
	Person    string // "" if unknown
	Steps     []Step
	Outcome   string // waiting, working, refused, denied, ended: the style
	Word      string // the same in words
	Reason    string
	RequestID string
}

// A Step is one step of an attempt.
type Step struct {
	Name  string
	Taken bool
}
